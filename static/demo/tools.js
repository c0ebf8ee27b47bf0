/** The tools that only the page can run. Each gets the model's arguments and returns what the model is told. */

export const tools = {
  /** Runs by itself: the server cannot know what time it is where the visitor is. */
  read_clock() {
    return {
      localTime: new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }),
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      language: navigator.language,
    };
  },

  /** Asks the visitor, and looks at the chosen picture in the browser. Rejects when there is none. */
  async choose_photo({ question }, { abortSignal }) {
    const { name, canvas } = await choose(question, abortSignal);
    return { name, width: canvas.width, height: canvas.height, averageColor: averageColor(canvas) };
  },
};

const SAMPLES = [
  { name: "handle-broken.png", label: "Broken handle", draw: (pen) => mug(pen, { handle: false, crack: false }) },
  { name: "crack.png", label: "Crack", draw: (pen) => mug(pen, { handle: true, crack: true }) },
  { name: "fine.png", label: "Looks fine", draw: (pen) => mug(pen, { handle: true, crack: false }) },
];

function choose(question, abortSignal) {
  const dialog = document.getElementById("photo");
  if (dialog.open) throw new Error("Another photo is being chosen.");
  const file = document.getElementById("photo-file");
  document.getElementById("photo-title").textContent = question;
  file.value = "";
  return new Promise((resolve, reject) => {
    const listening = new AbortController();
    const { signal } = listening;
    const leave = (settle, value) => {
      listening.abort();
      dialog.close();
      settle(value);
    };
    document.getElementById("photos").replaceChildren(...SAMPLES.map(({ name, label, draw }) => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 160, height: 120 });
      draw(canvas.getContext("2d"));
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.append(canvas, label);
      button.addEventListener("click", () => leave(resolve, { name, canvas }), { signal });
      return button;
    }));
    file.addEventListener("change", async () => {
      try {
        leave(resolve, await read(file.files[0]));
      } catch {
        leave(reject, new Error("The chosen file is not a picture that this browser can show."));
      }
    }, { signal });
    const refuse = () => leave(reject, new Error("The customer has no photo."));
    document.getElementById("photo-none").addEventListener("click", refuse, { signal });
    dialog.addEventListener("cancel", refuse, { signal });
    abortSignal.addEventListener("abort", () => leave(reject, abortSignal.reason), { signal });
    dialog.showModal();
  });
}

async function read(file) {
  const picture = await createImageBitmap(file);
  const canvas = Object.assign(document.createElement("canvas"), { width: picture.width, height: picture.height });
  canvas.getContext("2d").drawImage(picture, 0, 0);
  return { name: file.name, canvas };
}

function averageColor(canvas) {
  const small = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  small.drawImage(canvas, 0, 0, 1, 1);
  const [red, green, blue] = small.getImageData(0, 0, 1, 1).data;
  return `rgb(${red}, ${green}, ${blue})`;
}

function mug(pen, { handle, crack }) {
  pen.fillStyle = "#efe7da";
  pen.fillRect(0, 0, 160, 120);
  pen.fillStyle = pen.strokeStyle = "#2457c5";
  pen.fillRect(48, 30, 56, 66);
  pen.lineWidth = 9;
  pen.beginPath();
  if (handle) pen.arc(106, 62, 19, -1.3, 1.3);
  else {
    pen.arc(106, 62, 19, -1.3, -0.7);
    pen.moveTo(132, 92);
    pen.lineTo(144, 100);
  }
  pen.stroke();
  if (!crack) return;
  pen.strokeStyle = "#14171d";
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(62, 30);
  for (const [x, y] of [[72, 46], [64, 58], [80, 72], [74, 96]]) pen.lineTo(x, y);
  pen.stroke();
}
