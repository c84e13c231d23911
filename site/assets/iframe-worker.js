// Browsers start no worker for pages of the file system. There, search runs in a hidden frame that behaves like one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      const inside = frame.contentWindow;
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(inside, each)));
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.load(inside, url).then(() => {
        this.ready = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }
    load(inside, url) {
      return new Promise((done) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = script.onerror = done;
        inside.document.head.appendChild(script);
      });
    }
    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else this.ready.dispatchEvent(new this.ready.MessageEvent("message", { data }));
    }
    terminate() {}
  };
}
