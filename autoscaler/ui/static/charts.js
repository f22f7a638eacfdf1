// Draws each <div class="chart" data-figure="ID"> from the figure of plotly.js, {data, layout}, in the <script
// type="application/json" id="ID">, in the colors of the page. A figure that live.js has replaced is drawn again.
"use strict";

(() => {
  const CONFIG = { responsive: true, displayModeBar: false, showTips: false };

  // The colors and the font of the page, for the parts of a chart that are not data.
  function themed(layout) {
    const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name).trim();
    const fg = color("--fg"), line = color("--line");
    const themed = {
      ...layout,
      font: { color: fg, family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { ...layout.hoverlabel, bgcolor: color("--surface"), bordercolor: line, font: { color: fg } },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    };
    const ticks = matchMedia("(max-width: 40rem)").matches ? { nticks: 3, tickangle: 0 } : {}; // or they overlap
    for (const axis of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      themed[axis] = { gridcolor: line, linecolor: line, zerolinecolor: line, ...layout[axis] };
      if (axis.startsWith("x")) Object.assign(themed[axis], ticks);
    }
    return themed;
  }

  async function draw(chart) {
    try {
      const text = document.getElementById(chart.dataset.figure).textContent;
      chart.hidden = !text; // there is nothing to draw yet
      if (!text) return;
      const figure = JSON.parse(text);
      await Plotly.react(chart, figure.data, themed(figure.layout), CONFIG);
      // To a screen reader, the numbers along the axes say nothing.
      chart.setAttribute("role", "img");
      chart.setAttribute("aria-label", "Charts, described below");
      chart.dataset.drawn = "true";
    } catch (error) {
      chart.removeAttribute("role");
      chart.dataset.drawn = "false";
      chart.textContent = "This browser cannot draw the charts: " + error;
      throw error;
    }
  }

  const charts = () => [...document.querySelectorAll(".chart[data-figure]")];
  charts().forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts().forEach(draw));
  document.addEventListener("replaced", (event) => {
    const changed = (chart) => event.detail.some(
      (element) => element.id === chart.dataset.figure || element.contains(chart) ||
        element.contains(document.getElementById(chart.dataset.figure)));
    charts().filter(changed).forEach(draw);
  });
})();
