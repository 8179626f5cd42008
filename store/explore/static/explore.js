// Small comforts; every page works without them.
"use strict";

// A filter that is chosen from a list applies at once.
for (const list of document.querySelectorAll("select[data-submits]")) {
  list.addEventListener("change", () => list.form.requestSubmit());
}

// Empty fields stay out of addresses.
for (const form of document.querySelectorAll("form:not([method=post])")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (field.name && field.value === "") field.disabled = true;
  });
}
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form:not([method=post]) :disabled")) field.disabled = false;
});

// "/" moves to the search field.
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    event.preventDefault();
    document.getElementById("site-search")?.focus();
  }
});

// The code of a kernel is copied whole, as its download is.
for (const button of document.querySelectorAll("[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const answer = await fetch(button.dataset.copies);
    if (answer.ok) await navigator.clipboard.writeText(await answer.text());
    button.nextElementSibling.textContent = answer.ok ? "Copied." : "The code could not be read.";
  });
}

// A click on a row chooses it; two chosen rows are compared at once.
document.addEventListener("click", (event) => {
  const row = event.target.closest(".compare tbody tr");
  if (!row || event.target.closest("a, input, button") || getSelection().toString()) return;
  row.querySelector("input[name=pair]").click();
});
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.compare");
  if (form && form.querySelectorAll(":checked").length === 2) form.requestSubmit();
});

// A page of a run that is open is read again at each new snapshot and beat, until the run has ended.
// Only parts that differ are replaced; what a reader has opened, chosen or focused stays.
const live = document.body.dataset.live;
if (live && !new URLSearchParams(location.search).has("at")) {
  const events = new EventSource(live);
  let shown = null;
  const keep = (old, fresh) => {
    const opened = old.querySelectorAll("details");
    fresh.querySelectorAll("details").forEach((one, at) => { one.open = opened[at]?.open ?? one.open; });
    const places = [...old.querySelectorAll(".scroll, pre")].map((one) => [one.scrollLeft, one.scrollTop]);
    old.replaceWith(fresh);
    fresh.querySelectorAll(".scroll, pre").forEach((one, at) => one.scrollTo(...(places[at] ?? [0, 0])));
  };
  const read = async () => {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const place = scrollY;
    const intro = document.querySelector(".intro");
    const told = page.querySelector(".intro")?.textContent;
    if (intro && told && intro.textContent !== told) intro.textContent = told;
    const panels = document.querySelector(".panels");
    let before = null;
    for (const fresh of [...page.querySelectorAll(".panels > section")]) {
      const old = document.getElementById(fresh.id);
      if (!old) before ? before.after(fresh) : panels.prepend(fresh);
      else if (!old.contains(document.activeElement) && !old.querySelector(":checked") && source(old) !== source(fresh)) keep(old, fresh);
      before = document.getElementById(fresh.id);
    }
    scrollTo({ top: place, behavior: "instant" });
    if (!page.body.dataset.live) events.close();
  };
  const source = (section) => {
    const copy = section.cloneNode(true);
    copy.querySelectorAll("details").forEach((one) => { one.open = false; });
    return copy.outerHTML;
  };
  events.addEventListener("snapshot", (event) => {
    if (shown !== null && shown !== event.data) read();
    shown = event.data;
  });
  events.addEventListener("beat", read);
  addEventListener("pagehide", () => events.close());
}

// The console: Ctrl+Enter runs, Ctrl+Space and typing complete names of tables, views and columns.
const sql = document.getElementById("sql");
if (sql) {
  const list = document.getElementById("completions");
  let names = [];
  let chosen = 0;
  fetch(sql.dataset.names).then((answer) => answer.json()).then((known) => {
    names = [...new Set([...Object.keys(known), ...Object.values(known).flat()])].sort();
  });
  const word = () => /[A-Za-z_][A-Za-z0-9_]*$/.exec(sql.value.slice(0, sql.selectionStart))?.[0] ?? "";
  const close = () => { list.hidden = true; list.replaceChildren(); };
  const insert = (name) => {
    const end = sql.selectionStart;
    sql.setRangeText(name, end - word().length, end, "end");
    close();
    sql.focus();
  };
  const open = (fewest) => {
    const start = word().toLowerCase();
    const found = start.length < fewest ? [] : names.filter((name) => name.startsWith(start) && name !== start).slice(0, 8);
    chosen = 0;
    list.replaceChildren(...found.map((name, place) => {
      const item = document.createElement("li");
      item.textContent = name;
      item.classList.toggle("chosen", place === chosen);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); insert(name); });
      return item;
    }));
    list.hidden = found.length === 0;
  };
  sql.addEventListener("input", () => open(2));
  sql.addEventListener("blur", close);
  sql.addEventListener("keydown", (event) => {
    if (event.ctrlKey && event.key === "Enter") { event.preventDefault(); sql.form.requestSubmit(); return; }
    if (event.ctrlKey && event.key === " ") { event.preventDefault(); open(0); return; }
    if (list.hidden) return;
    const items = [...list.children];
    if (event.key === "Tab" || event.key === "Enter") { event.preventDefault(); insert(items[chosen].textContent); }
    else if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length;
      items.forEach((item, place) => item.classList.toggle("chosen", place === chosen));
    }
  });
}
