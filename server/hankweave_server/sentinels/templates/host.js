// The entry points of a QuickJS context that evaluates a sentinel's template or schema, and the few
// things that Node has, QuickJS lacks and templates use. Loaded after `vendor/eta.js` or `vendor/zod*.js`.
"use strict";

globalThis.console = { log() {}, info() {}, warn() {}, error() {}, debug() {} };

// Node formats for en-US with Intl, which QuickJS has not: digits in groups of three, 12-hour times.
{
  const grouped = (text) => {
    const [whole, fraction] = text.split(".");
    const groups = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return fraction === undefined ? groups : `${groups}.${fraction}`;
  };
  const plain = (number, least, most) => {
    const fixed = number.toFixed(Math.min(most, 20));
    if (!fixed.includes(".")) return fixed;
    const [whole, fraction] = fixed.split(".");
    const kept = fraction.replace(/0+$/, "").padEnd(least, "0");
    return kept === "" ? whole : `${whole}.${kept}`;
  };
  const hidden = (prototype, methods) => {
    for (const [name, value] of Object.entries(methods)) {
      Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
    }
  };
  hidden(Number.prototype, {
    toLocaleString(_locales, options = {}) {
      const number = Number(this);
      if (!Number.isFinite(number)) return String(number).replace("Infinity", "∞");
      const least = options.minimumFractionDigits ?? 0;
      const most = options.maximumFractionDigits ?? Math.max(3, least);
      return grouped(plain(number, least, most));
    },
  });

  const dateText = (date) => `${date.getMonth() + 1}/${date.getDate()}/${date.getFullYear()}`;
  const timeText = (date) => {
    const two = (number) => String(number).padStart(2, "0");
    const half = date.getHours() < 12 ? "AM" : "PM";
    const hour = date.getHours() % 12 || 12;
    return `${hour}:${two(date.getMinutes())}:${two(date.getSeconds())} ${half}`;
  };
  const orInvalid = (write) =>
    function () {
      return Number.isNaN(this.getTime()) ? "Invalid Date" : write(this);
    };
  hidden(Date.prototype, {
    toLocaleDateString: orInvalid(dateText),
    toLocaleTimeString: orInvalid(timeText),
    toLocaleString: orInvalid((date) => `${dateText(date)}, ${timeText(date)}`),
  });
}

// --- templates ------------------------------------------------------------------------------------

// Hankweave's options (prompt-templating-engine.ts); everything else is Eta's default.
const newEta = () => new Eta({ cache: true, autoEscape: false, rmWhitespace: false });

const asDate = (owner, key) => {
  const date = new Date(owner?.[key]);
  if (owner && !Number.isNaN(date.getTime())) owner[key] = date;
};

const entryPoints = {
  compile({ template }) {
    newEta().compile(template);
    return null;
  },

  render({ template, it, contents }) {
    asDate(it.codon, "startTime");
    asDate(it.world, "currentTime");
    for (const [index, value] of contents) {
      Object.defineProperty(it.events[index].data, "content", { value, enumerable: false });
    }
    return newEta().renderString(template, it);
  },

  schema({ source }) {
    return zod.toJSONSchema(schemaOf(source));
  },

  parse({ source, isArray, value }) {
    const schema = schemaOf(source);
    const result = (isArray ? zod.z.array(schema) : schema).safeParse(value);
    if (result.success) return { value: result.data };
    const [issue] = result.error.issues;
    return { path: issue.path, message: issue.message };
  },
};

// --- schemas --------------------------------------------------------------------------------------

function schemaOf(source) {
  const schema = evaluated(source);
  if (typeof schema?.safeParse !== "function") {
    throw new TypeError("The text is not a zod schema: write an expression such as z.object({...}).");
  }
  return schema;
}

// Hankweave evaluates `return <source>`. That misses a schema behind a comment or a line break, and
// modules, which people write in files; both are accepted here.
function evaluated(source) {
  const expression = source.trim().replace(/;$/, "");
  try {
    return new Function("z", `return (${expression}\n)`)(zod.z);
  } catch (error) {
    const isModule = /^\s*(?:import|export|const|let|var)\b/m.test(source);
    if (!(error instanceof SyntaxError) || !isModule) throw error;
  }
  const body = source
    .replace(/^\s*import\b[^;\n]*from\s*["']zod(?:\/v[34])?["'];?/gm, "")
    .replace(/^\s*export\s+default\b/gm, "__schema =")
    .replace(/^\s*(?:export\s+)?(?:const|let|var)\s+([\w$]+)\s*=/gm, "const $1 = __schema =");
  return new Function("z", `let __schema; ${body}\n; return __schema;`)(zod.z);
}

// A text that was cut in the middle of an emoji ends in half of it, which no UTF-8 can carry.
const wellFormed = (_key, value) => (typeof value === "string" ? value.toWellFormed() : value);

globalThis.call = (name, json) => {
  const result = entryPoints[name](JSON.parse(json));
  return JSON.stringify(result === undefined ? null : result, wellFormed);
};
