// Shows in each <time class="ago"> how long ago its time is.
"use strict";

(() => {
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const format = new Intl.RelativeTimeFormat("en", { style: "short" });

  function show() {
    for (const time of document.querySelectorAll("time.ago")) {
      const seconds = Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000);
      const [unit, length] = UNITS.find((each) => seconds >= each[1]) ?? ["second", 1];
      const text = format.format(-Math.floor(seconds / length), unit);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  show();
  setInterval(show, 5000);
  document.addEventListener("replaced", show);
})();
