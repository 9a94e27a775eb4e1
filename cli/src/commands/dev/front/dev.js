// Loads a page anew when the code or the files that it is made of have changed.
(() => {
  if (window.__justapiDev) return;
  window.__justapiDev = true;
  const mine = new URL(document.currentScript.src).search.slice(1);
  let styles = null;
  let pause = 50;
  let overlay = null;

  function hide() {
    if (overlay) overlay.remove();
    overlay = null;
  }

  function show(failure) {
    hide();
    overlay = document.createElement("div");
    overlay.id = "justapi-overlay";
    const root = overlay.attachShadow({ mode: "open" });
    // An element of style would need the leave of the page's content security policy.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(
      ":host{position:fixed;inset:0;z-index:2147483647;background:#000a;overflow:auto;" +
      "font:14px/1.5 system-ui,sans-serif}" +
      "main{margin:5vh auto;max-width:56rem;background:#1b1b1f;color:#e8e8ea;padding:1.25rem 1.5rem;" +
      "border-top:4px solid #ff6b6b;border-radius:6px}" +
      "h1{font-size:1.1rem;margin:0;color:#ff6b6b;overflow-wrap:anywhere}" +
      "h2{font:.9rem/1.5 ui-monospace,monospace;margin:1rem 0 .25rem}" +
      "pre{font:.82rem/1.55 ui-monospace,monospace;margin:.25rem 0;overflow:auto;white-space:pre}" +
      "pre span{display:block;width:max-content;min-width:100%;min-height:1.55em}" +
      ".here{background:#ff6b6b33}" +
      "p{color:#999;margin:1rem 0 0}button{float:right;background:none;border:1px solid #555;" +
      "color:inherit;border-radius:4px;cursor:pointer;font:inherit}",
    );
    root.adoptedStyleSheets = [sheet];
    const main = document.createElement("main");
    const add = (name, text, parent = main) => {
      const node = document.createElement(name);
      node.textContent = text;
      parent.append(node);
      return node;
    };
    add("button", "close").addEventListener("click", hide);
    add("h1", failure.exception || failure.what);
    if (failure.file) add("h2", `${failure.file}:${failure.line}`);
    if (failure.source && failure.source.length) {
      const frame = add("pre", "");
      for (const line of failure.source) {
        const text = `${String(line.line).padStart(5)}  ${line.text}`;
        add("span", text, frame).className = line.line === failure.line ? "here" : "";
      }
    }
    if (failure.traceback) add("pre", failure.traceback);
    add("p", "The last good code still serves; the page loads anew once the new code works.");
    root.append(main);
    document.documentElement.append(overlay);
  }

  function swap() {
    for (const link of document.querySelectorAll('link[rel~="stylesheet"][href]')) {
      const url = new URL(link.href);
      if (url.origin !== location.origin) continue;
      url.searchParams.set("justapi", Date.now());
      const next = link.cloneNode();
      next.href = url;
      // The old one goes when the new one is there, so that nothing flickers.
      next.addEventListener("load", () => link.remove());
      next.addEventListener("error", () => link.remove());
      link.after(next);
    }
  }

  function listen() {
    const source = new EventSource("/__justapi/events");
    source.addEventListener("state", (event) => {
      pause = 50;
      const state = JSON.parse(event.data);
      if (state.number !== mine) {
        source.close();
        location.reload();
        return;
      }
      if (styles !== null && state.styles !== styles) swap();
      styles = state.styles;
      if (state.failure && state.stale) show(state.failure);
      else hide();
    });
    source.addEventListener("error", () => {
      source.close();
      setTimeout(listen, pause);
      pause = Math.min(pause * 2, 2000);
    });
  }
  window.addEventListener("pagehide", hide);
  listen();
})();
