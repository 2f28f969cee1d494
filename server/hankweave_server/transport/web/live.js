// Shows live events. It asks for `readonly`, whatever the token would allow.
"use strict";

const SHOWN = 500; // Rows kept on the page; the journal has the rest.
const status = document.getElementById("status");
const rows = document.getElementById("events");
const ask = document.getElementById("ask");

// The fragment of an address is sent to no server and stands in no log.
let token = new URLSearchParams(location.hash.slice(1)).get("token");
let lastSeq = null;
let delay = 500;

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(`${scheme}//${location.host}/ws`);
  socket.onopen = () => {
    const data = { mode: "readonly", protocolVersion: 1, sendPreviousEvents: lastSeq === null };
    if (lastSeq !== null) data.sinceSeq = lastSeq;
    if (token) data.token = token;
    socket.send(JSON.stringify({ type: "handshake", data }));
  };
  socket.onmessage = (message) => receive(JSON.parse(message.data));
  socket.onclose = (event) => {
    if (event.code === 1008) {
      status.textContent = "a token is needed";
      ask.hidden = false;
      return;
    }
    status.textContent = "disconnected, trying again";
    setTimeout(connect, delay);
    delay = Math.min(delay * 2, 10000);
  };
}

function receive(frame) {
  if (frame.type === "handshake.response") {
    delay = 500;
    ask.hidden = true;
    status.textContent = "connected";
    if (lastSeq === null) lastSeq = frame.data.totalEvents;
    frame.data.eventHistory.slice().reverse().forEach(show);
    return;
  }
  if (frame.seq) lastSeq = frame.seq;
  show(frame);
}

function show(event) {
  const row = document.createElement("li");
  for (const text of [event.seq ?? "", event.type]) {
    row.append(Object.assign(document.createElement("span"), { textContent: text }));
  }
  row.append(
    Object.assign(document.createElement("code"), { textContent: JSON.stringify(event.data) }),
  );
  rows.prepend(row);
  while (rows.children.length > SHOWN) rows.lastChild.remove();
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value.trim();
  connect();
});

connect();
