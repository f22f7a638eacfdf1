// Adds new decisions to the list of an HPA's page. What the reader has open or focused stays where it is.
// Decisions in a row that stay at the same replicas are one line, until the reader opens it.
"use strict";

(() => {
  const MAX_ITEMS = 100;
  const MIN_RUN = 3;
  const list = document.getElementById("decisions");

  function foldRuns() {
    let run = [];
    for (const item of [...list.children, null]) {
      if (run.length && run[0].dataset.run !== item?.dataset.run) {
        if (run[0].dataset.run && run.length >= MIN_RUN) fold(run);
        run = [];
      }
      run.push(item);
    }
  }

  // The line is in the oldest item, so that it stays in place while newer ones arrive.
  function fold(run) {
    const isOpen = run.some((item) => "unfolded" in item.dataset || item.querySelector("[open]"));
    const oldest = run.at(-1);
    for (const item of run) {
      item.hidden = !isOpen && item !== oldest;
      if (isOpen) item.dataset.unfolded = "";
      if (item.hidden || isOpen) item.querySelector(".run")?.remove();
    }
    if (isOpen) return;
    const button = oldest.querySelector(".run") ?? lineOf(oldest);
    const [from, to] = [oldest, run[0]].map((item) => item.dataset.time.slice(11, 19));
    button.textContent = `${oldest.querySelector(".sentence strong").textContent}, ${run.length} times, ${from} to ${to}`;
  }

  function lineOf(item) {
    const button = document.createElement("button");
    button.className = "run";
    button.type = "button";
    button.addEventListener("click", () => {
      item.dataset.unfolded = "";
      foldRuns();
      item.querySelector("summary").focus({ preventScroll: true });
    });
    item.prepend(button);
    return button;
  }

  document.addEventListener("decisions", (event) => {
    const parsed = document.createElement("template");
    parsed.innerHTML = event.detail;
    const items = [...parsed.content.children], added = items.filter((item) => !document.getElementById(item.id));
    if (!("live" in list.dataset) || !added.length) return;

    // After a pause, decisions between those of the page and these may be missing: the page begins anew.
    const missing = added.length === items.length && items.length >= Number(list.dataset.live);
    const kept = missing ? undefined : [...list.querySelectorAll("details[open], :focus")].find((element) => {
      const { top, bottom } = element.getBoundingClientRect();
      return bottom > 0 && top < innerHeight;
    });
    const before = kept?.getBoundingClientRect().top;

    const old = [...list.children].slice(missing ? 0 : Math.max(0, MAX_ITEMS - added.length));
    const dropped = old.filter((item) => missing || !item.querySelector("details[open]"));
    const oldest = dropped[0]?.previousElementSibling ?? added.at(-1);
    dropped.forEach((item) => item.remove());
    list.prepend(...added);
    foldRuns();
    if (kept?.isConnected) scrollBy(0, kept.getBoundingClientRect().top - before);

    if (dropped.length) {
      const link = document.getElementById("older"), url = new URL(link.href);
      url.searchParams.set("before", oldest.dataset.time);
      link.href = url;
      link.hidden = false;
    }
    const scale = added.find((item) => "scales" in item.dataset);
    if (scale) document.getElementById("announcement").textContent = scale.querySelector(".sentence").textContent;
  });

  foldRuns();
})();
