"""Fixtures: a scripted API server and clients of it."""

from tests.kube.scripted_api import api as api
from tests.kube.scripted_api import client as client
from tests.kube.scripted_api import connected as connected
from tests.kube.scripted_api import kube as kube
