// An item of a review: shown, judged by keys or by touch, sent to the server, and kept in the tab until the server has it.
// Texts of people and models are text nodes alone.

const STORED = "opbench-review-draft:";
// An answer that the server hasn't confirmed by then is sent again; it knows it by its mark.
const PATIENCE_MS = 4000;
// After so many deliveries without a word the page is loaded anew: a server that was started again knows it no more.
const TRIES = 3;
const VIEWS = new WeakMap();

const token = () => [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");

const stored = {
  read(key) {
    try { return JSON.parse(sessionStorage.getItem(STORED + key)); } catch { return null; }
  },
  // A browser that keeps nothing still reviews: only a reload in the middle of an item then loses what was begun.
  write(key, draft) {
    try { sessionStorage.setItem(STORED + key, JSON.stringify(draft)); } catch { /* nothing is kept */ }
  },
  drop(key) {
    try { sessionStorage.removeItem(STORED + key); } catch { /* nothing was kept */ }
  },
};

class View {
  constructor(root) {
    this.root = root;
    this.page = root.ownerDocument;
    this.data = null;
    this.draft = null;
    this.key = null;
    this.send = () => {};
    this.shownAt = null;
    this.asked = null;
    this.waiting = null;
    this.tries = 0;
    this.onKey = (event) => this.press(event);
    this.onHide = () => this.clock();
    this.one(".save").addEventListener("click", () => this.save());
    for (const radio of this.all("input[type=radio]")) radio.addEventListener("change", () => this.verdict(radio.value));
    for (const side of ["a", "b"]) {
      const range = this.range(side);
      range.addEventListener("input", () => this.score(side, Number(range.value)));
      this.one(`.score[data-side=${side}] .clear`).addEventListener("click", () => this.score(side, null));
    }
    this.one("textarea").addEventListener("input", (event) => this.change({ comment: event.target.value }));
    this.one(".flag input").addEventListener("change", (event) => this.change({ flagged: event.target.checked }));
    this.one(".undo").addEventListener("click", () => this.undo());
    this.one(".person").open = root.host.clientWidth >= 900;
  }

  one(selector) { return this.root.querySelector(selector); }

  all(selector) { return [...this.root.querySelectorAll(selector)]; }

  range(side) { return this.one(`.score[data-side=${side}] input`); }

  attach() {
    // Before Streamlit's own keys: its C clears the cache.
    window.addEventListener("keydown", this.onKey, true);
    this.page.addEventListener("visibilitychange", this.onHide);
  }

  detach() {
    this.clock();
    window.removeEventListener("keydown", this.onKey, true);
    this.page.removeEventListener("visibilitychange", this.onHide);
  }

  // Adds the time since the last look to the draft, unless the page was hidden.
  clock() {
    const now = performance.now();
    if (this.draft && this.shownAt !== null) {
      this.draft.seconds += (now - this.shownAt) / 1000;
      stored.write(this.key, this.draft);
    }
    this.shownAt = this.page.hidden ? null : now;
  }

  update(data, send) {
    this.send = send;
    const key = data.item ? `${data.of}:${data.item.id}` : null;
    const heard = data.heard;
    if (heard && this.draft?.sent === heard.press) {
      if (heard.ok) {
        stored.drop(this.key);
        this.draft = null;
      } else {
        this.draft.sent = null;
        this.draft.press = token();
        stored.write(this.key, this.draft);
      }
    }
    if (heard && this.asked === heard.press) this.asked = null;
    this.data = data;
    const fresh = key !== this.key || (key && !this.draft);
    if (fresh) {
      this.clock();
      this.key = key;
      this.draft = key && (stored.read(key) ?? {
        press: token(), sent: null, verdict: null, a: null, b: null, comment: "", flagged: false, seconds: 0,
        ...(data.before ?? {}),
      });
      this.shownAt = this.page.hidden ? null : performance.now();
      this.show();
    }
    this.one(".place").textContent = data.place;
    this.one("progress").value = data.share;
    this.one(".saved").textContent = this.draft?.sent ? "Saving…" : heard?.ok ? heard.text : "";
    this.one(".problem").textContent = heard && !heard.ok ? heard.text : "";
    this.one(".undo").disabled = !data.undo;
    this.mark();
    // Sent, and neither taken nor refused: the page was loaded anew in between.
    if (this.draft?.sent) this.deliver();
  }

  show() {
    const { item, waiting, guidance } = this.data;
    const hint = this.one(".guidance");
    hint.textContent = guidance;
    hint.hidden = !guidance || !item;
    const note = this.one(".waiting");
    note.textContent = waiting;
    note.hidden = Boolean(item);
    for (const panel of this.all(".person, .asked")) panel.hidden = !item;
    for (const part of this.all(".controls, .verdicts, .flag, .save")) part.hidden = !item;
    this.one(".earlier").hidden = !item?.earlier.length;
    if (!item) return;
    this.one(".user").textContent = item.user;
    this.one(".profile").textContent = item.profile || "No profile is known.";
    this.fill(".topics", item.topics.map((topic) => this.made("li", "", topic)));
    this.fill(".relevant", item.memories.filter((each) => each.relevant).map((each) => this.memory(each)));
    const others = item.memories.filter((each) => !each.relevant);
    this.fill(".others", others.map((each) => this.memory(each)));
    this.one(".relevant-head").hidden = others.length === item.memories.length;
    this.one(".rest").hidden = !others.length;
    this.one(".rest > summary").textContent = `Further memories (${others.length})`;
    this.one(".kind").textContent = item.kind;
    this.one(".question").textContent = item.question;
    for (const side of ["a", "b"]) this.one(`article[data-side=${side}] p`).textContent = item[side];
    this.fill(".earlier ul", item.earlier.map((line) => this.made("li", "text", line)));
    this.one(".scale").textContent = item.scale;
    this.one("textarea").value = this.draft.comment;
    this.one(".flag input").checked = this.draft.flagged;
    this.root.activeElement?.blur();
    if (this.root.host.getBoundingClientRect().top < 0) this.root.host.scrollIntoView({ block: "start" });
  }

  made(tag, css, text) {
    const element = this.page.createElement(tag);
    element.className = css;
    element.textContent = text;
    return element;
  }

  memory({ text, date }) {
    const line = this.page.createElement("li");
    line.append(this.made("b", "", date), this.made("span", "text", text));
    return line;
  }

  fill(selector, children) { this.one(selector).replaceChildren(...children); }

  // What was chosen so far, as the controls show it.
  mark() {
    const draft = this.draft;
    const busy = Boolean(draft?.sent || this.asked);
    this.one(".save").disabled = busy;
    if (busy) this.one(".undo").disabled = true;
    if (!draft) return;
    for (const radio of this.all("input[type=radio]")) radio.checked = radio.value === draft.verdict;
    for (const side of ["a", "b"]) {
      const value = draft[side];
      this.one(`article[data-side=${side}]`).classList.toggle("chosen", [side, "both"].includes(draft.verdict));
      this.one(`.score[data-side=${side}]`).classList.toggle("unset", value === null);
      this.range(side).value = value ?? 0.5;
      this.one(`.score[data-side=${side}] output`).textContent = value === null ? "not given" : value.toFixed(2);
    }
  }

  change(what) {
    if (!this.draft || this.draft.sent) return;
    Object.assign(this.draft, what);
    this.clock();
    stored.write(this.key, this.draft);
    this.one(".problem").textContent = "";
    this.mark();
  }

  verdict(value) { this.change({ verdict: value }); }

  score(side, value) { this.change({ [side]: value === null ? null : Math.round(100 * value) / 100 }); }

  message() {
    const { press, verdict, a, b, comment, flagged, seconds } = this.draft;
    return { deed: "answer", item: this.data.item.id, press, verdict, a, b, comment, flagged, seconds };
  }

  save() {
    if (!this.draft || this.draft.sent || this.asked) return;
    if (!this.draft.verdict) {
      this.one(".problem").textContent = "Choose one of the four first: A, B, neither or both.";
      return;
    }
    this.clock();
    this.draft.sent = this.draft.press;
    stored.write(this.key, this.draft);
    this.one(".saved").textContent = "Saving…";
    this.tries = 0;
    this.mark();
    this.deliver();
  }

  deliver() {
    clearTimeout(this.waiting);
    const press = this.draft.sent;
    this.send(this.message());
    this.waiting = setTimeout(() => {
      if (this.draft?.sent !== press) return;
      this.one(".saved").textContent = "Not saved yet, trying again…";
      this.tries += 1;
      if (this.tries >= TRIES) this.renew(press);
      this.deliver();
    }, PATIENCE_MS);
  }

  // Loads the page anew, once for a press, when the server is there and the tab has kept the answer, which is sent then.
  async renew(press) {
    const kept = stored.read(this.key);
    if (kept?.sent !== press || kept.renewed === press) {
      this.one(".problem").textContent = "The server doesn't take this answer. Reload the page.";
      return;
    }
    try {
      if (!(await fetch(location.pathname.replace(/[^/]*$/, "_stcore/health"), { cache: "no-store" })).ok) return;
    } catch { return; /* It isn't there: the answer waits. */ }
    if (this.draft?.sent !== press) return;
    this.draft.renewed = press;
    stored.write(this.key, this.draft);
    location.reload();
  }

  undo() {
    if (!this.data?.undo || this.draft?.sent || this.asked) return;
    this.asked = token();
    this.mark();
    this.send({ deed: "undo", press: this.asked });
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.asked = null;
      this.one(".undo").disabled = !this.data.undo;
      this.mark();
    }, PATIENCE_MS);
  }

  press(event) {
    if (event.isComposing || event.altKey || event.metaKey) return;
    const target = event.composedPath()[0];
    const ours = this.root.contains(target);
    if (!ours && target !== this.page.body && !this.outside(target)) return;
    const kind = ours ? target.type ?? "" : "";
    const comment = kind === "textarea";
    const wanted = this.meant(event, kind, comment, target);
    if (!wanted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!event.repeat) wanted();
  }

  // Whether an element of the page around leaves its keys to us: what takes no keys itself.
  outside(target) {
    return target instanceof Element && !target.isContentEditable
      && !target.closest("input, textarea, select, button, a, summary, [role=dialog], [role=menu], [role=listbox]");
  }

  meant(event, kind, comment, target) {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key === "Enter" && (event.ctrlKey || !comment)) {
      const pressed = ["BUTTON", "SUMMARY", "A"].includes(target.tagName) && !target.classList.contains("save");
      return pressed || !this.draft ? null : () => this.save();
    }
    if (event.ctrlKey) return null;
    if (key === "Escape" && (comment || kind === "range")) return () => target.blur();
    if (comment) return null;
    if (key === "u") return () => this.undo();
    if (!this.draft) return null;
    if (kind === "range" && /^[0-9]$/.test(key)) {
      return () => this.score(target.id.at(-1), Number(key) / 10);
    }
    const verdict = { 1: "a", 2: "b", 3: "neither", 4: "both" }[key];
    if (verdict) return () => this.verdict(verdict);
    if (key === "a" || key === "b") return () => this.range(key).focus();
    if (key === "c") return () => this.one("textarea").focus();
    if (key === "f") {
      return () => {
        const box = this.one(".flag input");
        box.checked = !box.checked;
        this.change({ flagged: box.checked });
      };
    }
    return null;
  }
}

export default function ({ data, parentElement, setTriggerValue }) {
  let view = VIEWS.get(parentElement);
  if (!view) {
    view = new View(parentElement);
    VIEWS.set(parentElement, view);
  }
  view.detach();
  view.attach();
  view.update(data, (said) => setTriggerValue("said", said));
  return () => {
    view.detach();
    clearTimeout(view.waiting);
  };
}
