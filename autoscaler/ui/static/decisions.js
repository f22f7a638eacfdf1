// Adds new decisions to the list of an HPA's page. What the reader has open or focused stays where it is.
"use strict";

document.addEventListener("decisions", (event) => {
  const MAX_ITEMS = 100;
  const list = document.getElementById("decisions");
  const parsed = document.createElement("template");
  parsed.innerHTML = event.detail;
  const items = [...parsed.content.children], added = items.filter((item) => !document.getElementById(item.id));
  if (!("live" in list.dataset) || !added.length) return;

  const inView = (element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  // After a pause, decisions between those of the page and these may be missing.
  if (added.length === items.length && items.length >= Number(list.dataset.live)) list.replaceChildren();

  const kept = [...list.querySelectorAll("details[open], :focus")].find(inView);
  const before = kept?.getBoundingClientRect().top;

  list.prepend(...added);
  for (const item of [...list.children].slice(MAX_ITEMS)) {
    if (item.querySelector("details[open]")) continue;
    item.remove();
    showOlder(list.lastElementChild.dataset.time);
  }
  if (kept?.isConnected) scrollBy(0, kept.getBoundingClientRect().top - before);

  const scale = added.find((item) => "scales" in item.dataset);
  if (scale) document.getElementById("announcement").textContent = scale.querySelector(".sentence").textContent;

  function showOlder(time) {
    const link = document.getElementById("older"), url = new URL(link.href);
    url.searchParams.set("before", time);
    link.href = url;
    link.hidden = false;
  }
});
