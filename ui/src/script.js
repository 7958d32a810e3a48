// Keeps the page up: the server sends the parts that have changed, and each takes the place of the one before.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const live = byId("live");
  const trouble = byId("trouble");
  const now = byId("now");
  const icon = document.querySelector("link[rel=icon]");
  // Set where an address could not be drawn: it is loaded again when it can be.
  const problem = byId("problem");

  // A form that is open stays as it was opened, and says if what it was opened for has changed. So does what else a
  // person has chosen.
  function keep(part) {
    const open = [...part.querySelectorAll("details[open]")];
    const scrolls = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const steps = focused && path(part, focused);
    return () => {
      for (const form of open) {
        const fresh = part.querySelector(`#${CSS.escape(form.id)}`);
        const changed = part.querySelector("[data-changed]");
        form.querySelector(".changed").textContent = fresh && seen(fresh) === seen(form) ? "" : changed.dataset.changed;
        if (fresh) form.querySelector("[name=csrf]").value = fresh.querySelector("[name=csrf]").value;
        if (fresh) fresh.replaceWith(form);
        else changed.append(form);
      }
      part.querySelectorAll(".scroll").forEach((box, at) => {
        box.scrollLeft = scrolls[at] ?? 0;
      });
      const again = part.contains(focused) ? focused : steps && walk(part, steps);
      if (again) again.focus({ preventScroll: true });
    };
  }

  function seen(form) {
    return [...form.querySelectorAll("[type=hidden]:not([name=csrf])")].map((field) => field.value).join("\n");
  }

  // Where an element is within a part, as steps from child to child.
  function path(part, element) {
    const steps = [];
    for (let at = element; at !== part; at = at.parentElement) {
      steps.unshift([...at.parentElement.children].indexOf(at));
    }
    return steps;
  }

  function walk(part, steps) {
    return steps.reduce((at, step) => at && at.children[step], part);
  }

  // Parts that wait until nobody selects a text in what they replace.
  const late = new Map();

  function replace({ id, html }) {
    const part = byId(id);
    if (!part) return;
    late.delete(id);
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) {
      late.set(id, html);
      return;
    }
    const restore = keep(part);
    const template = document.createElement("template");
    template.innerHTML = html;
    part.replaceChildren(template.content);
    localTimes(part);
    restore();
  }

  document.addEventListener("selectionchange", () => {
    for (const [id, html] of [...late]) replace({ id, html });
  });

  // Times in the zone of whoever reads them, as a hint besides.
  function localTimes(part) {
    for (const time of part.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!Number.isNaN(at.getTime())) time.title = `${time.dateTime} (here ${at.toLocaleString()})`;
    }
  }

  // Ages go on by the store's time, and are no reason to send a part again. The words are those of the server.
  function ages(at) {
    for (const time of document.querySelectorAll("time.age")) {
      const ms = at - Date.parse(time.dateTime);
      time.textContent = ms < 0 ? `in ${length(-ms)}` : `${length(ms)} ago`;
    }
  }

  function length(ms) {
    const units = [[86400000, "d"], [3600000, "h"], [60000, "min"]];
    const [size, unit] = units.find(([size]) => ms >= 2 * size) ?? (ms < 1000 ? [1, "ms"] : [1000, "s"]);
    return `${Math.floor(ms / size)} ${unit}`;
  }

  function say(text) {
    trouble.hidden = !text;
    trouble.textContent = text ?? "";
  }

  function show(isLive) {
    live.className = isLive ? "live" : "lost";
    if (now) live.textContent = isLive ? "live, as of" : "not live since";
  }

  const AWAY = "The page does not answer, so the data shown is old. It is tried again.";
  // Events that say nothing are events, too: without any, the page is not live.
  const SILENCE = 15000;
  let events, again, heard;
  function lost(text, after) {
    show(false);
    say(text);
    clearTimeout(again);
    if (after) again = setTimeout(follow, after);
  }
  setInterval(() => {
    if (events && Date.now() - heard > SILENCE) lost(AWAY, 1);
  }, 1000);

  // Who does not look at the page does not ask for events.
  function follow() {
    clearTimeout(again);
    events?.close();
    events = null;
    if (document.visibilityState !== "visible") return show(false);
    heard = Date.now();
    events = new EventSource(location.pathname + location.search);
    const on = (name, then) => events.addEventListener(name, (event) => {
      heard = Date.now();
      then(event.data && JSON.parse(event.data));
    });
    on("alive", () => {});
    on("part", (part) => (problem ? location.reload() : replace(part)));
    on("now", (told) => {
      if (!now) return;
      now.dateTime = told.now;
      now.textContent = told.now.slice(11, 19);
      ages(Date.parse(told.now));
      show(!told.trouble);
      document.title = document.title.replace(/^(\(\d+\) )?/, told.needing ? `(${told.needing}) ` : "");
      icon.href = icon.href.replace(/(icon|alarm)\.svg$/, told.needing ? "alarm.svg" : "icon.svg");
      say(told.trouble && `The store does not answer, so the data shown is old: ${told.trouble}`);
    });
    on("trouble", ({ says }) => {
      show(false);
      say(problem ? "" : says);
      if (problem) problem.textContent = says;
    });
    events.addEventListener("error", () => {
      // A browser tries again where there was no answer, and not where one refused it.
      const isRefused = events.readyState === EventSource.CLOSED;
      if (!isRefused) return lost(AWAY);
      events = null;
      lost(problem ? "" : "Changes cannot be followed now, so the data shown is old: load the page again.", SILENCE);
    });
  }
  document.addEventListener("visibilitychange", follow);
  follow();

  // Keys: 1 to 6 lead to the screens, j and k to the next row and the one before.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea")) return;
    const place = document.querySelector(`nav a[accesskey="${CSS.escape(event.key)}"]`);
    if (place) {
      place.click();
    } else if (event.key === "j" || event.key === "k") {
      const links = [...document.querySelectorAll("main th a, main .who a, main .changes a")];
      const at = links.indexOf(document.activeElement);
      const next = links[event.key === "j" ? at + 1 : at - 1];
      if (next) next.focus();
    }
  });

  // The log has addresses with a token behind the #: it is given for a cookie, and leaves the address.
  const login = new URL("login", document.currentScript.src);
  function enter() {
    const token = location.hash.slice(1);
    if (!/^[0-9a-f]{32}$/.test(token)) return;
    history.replaceState(null, "", location.pathname + location.search);
    fetch(login, { method: "POST", body: new URLSearchParams({ token }), redirect: "manual" })
      .then((answer) => (answer.type === "opaqueredirect" ? location.reload() : location.assign(login)));
  }
  window.addEventListener("hashchange", enter);
  enter();

  localTimes(document);
})();
