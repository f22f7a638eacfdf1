// Keeps a page current: applies the server-sent events of the URL in <body data-events>.
//
// replace   HTML whose elements replace those with the same id. Focus, open <details>, and the scroll position of
//           elements with an id stay. Then `replaced` is dispatched on document, its detail: the new elements. While a
//           button is pressed, it waits.
// reload    loads the page again
// custom    NAME, a line feed and DATA: becomes the CustomEvent NAME on document, its detail: DATA
//
// Each stream begins with the present state, so a page is right again after a reconnect. While the page is hidden there
// is no stream: browsers allow only six connections per origin.
"use strict";

(() => {
  const CONNECT_MS = 10000;
  const RETRY_MS = [1000, 2000, 5000, 10000, 30000];
  const SILENCE_MS = 45000; // the server sends a heartbeat every 15 s
  const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";
  const url = document.body.dataset.events;
  if (!url) return;

  const live = document.getElementById("live");
  const status = live.querySelector("[role=status]");
  const pause = live.querySelector("button");
  let source = null, timer = null, failures = 0;
  let pressed = false, withheld = [];

  const show = (state, text) => {
    live.dataset.state = state;
    if (status.textContent !== text) status.textContent = text;
  };

  const close = () => {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  };

  const retry = () => {
    close();
    if (failures) show("lost", "Disconnected, trying again"); // streams also end after some time
    timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };

  const received = () => {
    clearTimeout(timer);
    timer = setTimeout(retry, SILENCE_MS);
  };

  const on = (name, apply) => source.addEventListener(name, (event) => { received(); apply(event.data); });

  function open() {
    close();
    if (document.hidden || pause.getAttribute("aria-pressed") === "true") return;
    source = new EventSource(url);
    timer = setTimeout(retry, CONNECT_MS);
    source.onopen = () => { failures = 0; received(); show("live", "Live"); };
    source.onerror = retry; // a refused stream is not opened again by the browser
    on("heartbeat", () => {});
    on("reload", () => location.reload());
    on("replace", (html) => { if (pressed) withheld.push(html); else replace(html); });
    on("custom", (data) => {
      const end = data.indexOf("\n");
      const name = end < 0 ? data : data.slice(0, end), detail = end < 0 ? "" : data.slice(end + 1);
      document.dispatchEvent(new CustomEvent(name, { detail }));
    });
  }

  function replace(html) {
    const parsed = document.createElement("template");
    parsed.innerHTML = html;
    const replaced = [];
    for (const element of [...parsed.content.children]) {
      const old = document.getElementById(element.id);
      if (!old) continue;
      keepState(old, element);
      if (old.isEqualNode(element)) continue; // leaves selected text selected
      const restoreFocus = focusWithin(old);
      const scrolled = [old, ...old.querySelectorAll("[id]")].filter((each) => each.scrollLeft || each.scrollTop);
      old.replaceWith(element);
      for (const each of scrolled) document.getElementById(each.id)?.scrollTo(each.scrollLeft, each.scrollTop);
      restoreFocus();
      replaced.push(element);
    }
    if (replaced.length) document.dispatchEvent(new CustomEvent("replaced", { detail: replaced }));
  }

  // What the reader has opened, and is typing, is not in the HTML of the server.
  function keepState(old, element) {
    for (const details of [old, ...old.querySelectorAll("details[id]")]) {
      const same = element.id === details.id ? element : element.querySelector("#" + CSS.escape(details.id));
      if (details.localName === "details" && same) same.open = details.open;
    }
    const active = document.activeElement;
    if (active.id && old.contains(active) && "value" in active) {
      const same = element.querySelector("#" + CSS.escape(active.id));
      if (same) same.value = active.value;
    }
  }

  // Returns a function that focuses the element that corresponds to the focused one: its place among the focusable
  // elements of the closest element with an id.
  function focusWithin(old) {
    const active = document.activeElement;
    if (!old.contains(active)) return () => {};
    const owner = active.closest("[id]"), id = owner.id;
    const place = owner === active ? -1 : [...owner.querySelectorAll(FOCUSABLE)].indexOf(active);
    const range = active.localName === "input" && [active.selectionStart, active.selectionEnd];
    return () => {
      const again = document.getElementById(id);
      const target = place < 0 ? again : again?.querySelectorAll(FOCUSABLE)[place];
      target?.focus({ preventScroll: true });
      if (range && range[0] !== null) target?.setSelectionRange?.(...range);
    };
  }

  // An element that is replaced between the press and the release of a button is not clicked.
  for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) {
    document.addEventListener(name, (event) => {
      pressed = event.buttons > 0;
      if (!pressed && withheld.length) setTimeout(() => withheld.splice(0).forEach(replace)); // after the click
    }, true);
  }
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) { close(); show("paused", "Paused"); } else { show("connecting", "Connecting"); open(); }
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  live.hidden = false;
  show("connecting", "Connecting");
  open();
})();
