"""What the playground cannot do, told to people: the message is all that the command line prints.

PlaygroundError
  MissingBinaryError   a program is neither on PATH nor to be had (playground.binaries)
  PrometheusError      Prometheus does not start, or refuses samples (playground.prometheus)
  InstallError         manifests cannot be rendered or applied (playground.install)
  ClusterError         a real API server cannot be started (playground.kube_apiserver)
  ChildEndedError      a process ended that should go on (playground.bundle)
  DemoError            the demo cannot run here (playground.demo)
"""


class PlaygroundError(Exception):
    """Base of the playground's errors."""
