// The page that the site's own search puts first, for each of some texts.
async (texts) => {
  const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3]; // kinds of the theme's messages
  const configuration = JSON.parse(document.getElementById("__config").textContent);
  const worker = new Worker(new URL(configuration.search, location.href));
  const next = (kind) =>
    new Promise((done) => {
      const hear = ({ data }) => {
        if (data.type !== kind) return;
        worker.removeEventListener("message", hear);
        done(data.data);
      };
      worker.addEventListener("message", hear);
    });
  const { config, docs } = await (await fetch("search/search_index.json")).json();
  const ready = next(READY);
  worker.postMessage({ type: SETUP, data: { config, docs, options: { suggest: false } } });
  await ready;
  const found = {};
  for (const text of texts) {
    const result = next(RESULT);
    worker.postMessage({ type: QUERY, data: text });
    const [first] = (await result).items;
    found[text] = first ? first[0].location.split("#")[0] : "";
  }
  worker.terminate();
  return found;
}
