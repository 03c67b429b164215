// The dashboard: refreshes the values, and sends the forms with the token of this tab.
"use strict";
(() => {
  const KEY = "aiocosid.token";
  const EVERY = 2000; // milliseconds
  const FEW = 10; // rows that a phone shows at first
  let timer = 0;
  let sorted = {}; // by table: the column, and 1 for upwards or -1
  let latest = {}; // by table: what it shows

  const byId = (id) => document.getElementById(id);
  const headers = (accept) => {
    const token = sessionStorage.getItem(KEY);
    return token ? { accept, authorization: `Bearer ${token}` } : { accept };
  };

  const element = (name, text, kind) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  // Puts a value into a place, which stays as it is if nothing has changed.
  const show = (place, value) => {
    const state = JSON.stringify(value);
    if (place.dataset.state === state) return;
    place.dataset.state = state;
    const parts = [element("span", value.text, value.level)];
    if (value.why) parts.push(" ", element("small", value.why));
    place.replaceChildren(...parts);
  };

  // Orders rows by a column: numbers by their size, and what is not known last.
  const inOrder = (key, rows) => {
    const [column, way] = sorted[key] || [];
    if (column === undefined) return rows;
    const of = (row) => row[column].text;
    const number = (text) => Number(text.replaceAll(",", ""));
    return [...rows].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x === "-" || y === "-") return (x === "-") - (y === "-");
      const apart = number(x) - number(y);
      return way * (Number.isNaN(apart) ? x.localeCompare(y) : apart);
    });
  };

  const makeSortable = (table) => {
    const { key } = table.dataset;
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = element("button", heading.textContent);
      button.type = "button";
      button.addEventListener("click", () => {
        const [before, way] = sorted[key] || [];
        sorted[key] = [column, before === column ? -way : 1];
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", sorted[key][1] > 0 ? "ascending" : "descending");
        if (latest[key]) showTable(table, latest[key]);
        else refresh();
      });
      heading.replaceChildren(button);
    });
  };

  const showTable = (table, found) => {
    const { key } = table.dataset;
    latest[key] = found;
    found = { ...found, rows: inOrder(key, found.rows) };
    const headings = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    while (body.rows.length > found.rows.length) body.deleteRow(-1);
    found.rows.forEach((row, at) => {
      let line = body.rows[at];
      if (!line) {
        line = body.insertRow();
        line.setAttribute("role", "row");
        for (const heading of headings) {
          const cell = line.insertCell();
          cell.setAttribute("role", "cell");
          cell.className = heading.className;
          cell.dataset.label = heading.textContent;
        }
      }
      row.forEach((value, column) => show(line.cells[column], value));
    });
    table.hidden = found.rows.length === 0;
    for (const each of table.parentElement.querySelectorAll(".more")) {
      each.hidden = found.rows.length <= FEW;
    }
    byId(`${table.dataset.key}-note`).textContent = found.note;
  };

  const trouble = (text) => {
    const place = byId("trouble");
    if (place && place.textContent !== text) place.textContent = text;
  };

  const refresh = async () => {
    try {
      const find = byId("find")?.value;
      const query = find ? `?find=${encodeURIComponent(find)}` : "";
      const answer = await fetch(`dashboard/overview.json${query}`, {
        headers: headers("application/json"),
        cache: "no-store",
      });
      if (answer.status === 401) return forget();
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const found = await answer.json();
      const facts = byId("facts");
      if (!facts) return;
      Object.values(found.facts).forEach((value, at) => {
        show(facts.children[at].querySelector("dd"), value);
      });
      for (const [key, curve] of Object.entries(found.curves)) {
        const place = document.querySelector(`[data-curve="${key}"]`);
        place.querySelector("span").textContent = curve.text;
        place.querySelector("path").setAttribute("d", curve.path);
      }
      for (const [key, rows] of Object.entries(found.tables)) {
        showTable(document.querySelector(`table[data-key="${key}"]`), rows);
      }
      trouble("");
    } catch {
      trouble("The server does not answer; the values are old.");
    }
  };

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const live = byId("live");
      if (live && live.checked && !document.hidden) await refresh();
      if (live) later();
    }, EVERY);
  };

  // Puts a page that the server has sent into the place of this one.
  const replace = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html");
    document.title = next.title;
    document.body.replaceWith(document.adoptNode(next.body));
    start();
  };

  const load = async () => {
    const answer = await fetch("dashboard", { headers: headers("text/html"), cache: "no-store" });
    replace(await answer.text());
  };

  function forget() {
    sessionStorage.removeItem(KEY);
    return load();
  }

  const tell = (text, values, isError) => {
    const place = byId("answer");
    const list = document.createElement("dl");
    for (const [name, value] of Object.entries(values)) {
      const pair = document.createElement("div");
      pair.append(element("dt", name), element("dd", value));
      list.append(pair);
    }
    place.className = isError ? "bad" : "good";
    place.hidden = false;
    place.replaceChildren(element("p", text), ...(list.children.length ? [list] : []));
    place.scrollIntoView({ block: "nearest" });
  };

  const act = async (event) => {
    event.preventDefault();
    const form = event.target;
    const body = new URLSearchParams(new FormData(form, event.submitter));
    body.delete("token");
    try {
      const answer = await fetch("dashboard", {
        method: "POST",
        headers: headers("application/json"),
        body,
      });
      const found = await answer.json();
      if (answer.ok) {
        tell(found.text, found.values, false);
        for (const box of form.querySelectorAll("[name=confirm]")) {
          if (box.type === "checkbox") box.checked = false;
          else box.value = "";
        }
        await refresh();
      } else {
        tell(found.detail || found.title, {}, true);
      }
    } catch {
      tell("The server does not answer; it may have done it.", {}, true);
    }
  };

  const enter = async (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, byId("token").value.trim());
    await load();
    if (document.body.dataset.page === "token") sessionStorage.removeItem(KEY);
  };

  const start = () => {
    const asks = byId("token-form");
    if (asks) {
      asks.addEventListener("submit", enter);
      return;
    }
    sorted = {};
    latest = {};
    document.querySelectorAll("table").forEach(makeSortable);
    const search = byId("search");
    search.addEventListener("submit", (event) => event.preventDefault());
    search.addEventListener("input", refresh);
    for (const form of document.forms) {
      if (form === search) continue;
      form.addEventListener("submit", act);
      const token = form.querySelector(".token");
      if (token && sessionStorage.getItem(KEY)) token.remove(); // the header has it
    }
    byId("forget")?.addEventListener("click", forget);
    byId("answer").hidden ||= !byId("answer").textContent;
    later();
  };

  start();
  if (byId("token-form") && sessionStorage.getItem(KEY)) load();
})();
