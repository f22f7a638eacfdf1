"""The playground's errors; the command line prints only their message.

PlaygroundError
  MissingBinaryError   a program is not available (playground.binaries)
  PrometheusError      Prometheus does not start, or refuses samples (playground.prometheus)
  InstallError         manifests cannot be rendered or applied (playground.install)
  ClusterError         a real API server cannot be started (playground.kube_apiserver)
  ChildEndedError      a process ended unexpectedly (playground.bundle)
  DemoError            the demo cannot run in its folder (playground.demo)
"""


class PlaygroundError(Exception):
    """Base of the playground's errors."""
