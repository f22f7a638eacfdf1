// Adds new decisions to the list of an HPA's page. What the reader has open or focused stays where it is.
"use strict";

document.addEventListener("decisions", (event) => {
  const MAX_ITEMS = 100;
  const list = document.getElementById("decisions");
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
