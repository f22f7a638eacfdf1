"""Write the dashboards: `make dashboards`."""

from tools.dashboards.files import FILES, render

for path, build in FILES.items():
    path.write_text(render(build()))
