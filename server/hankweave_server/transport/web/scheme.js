/** The colours of the page: as the system has them, or as the reader wants them here. */
const KEPT = "hankweave.scheme";
const SCHEMES = ["as the system", "light", "dark"];

export function schemeOf() {
  return document.documentElement.dataset.scheme ?? SCHEMES[0];
}

/** Takes the next of the schemes, and returns its name. */
export function turnScheme() {
  const next = SCHEMES[(SCHEMES.indexOf(schemeOf()) + 1) % SCHEMES.length];
  wear(next);
  try {
    localStorage.setItem(KEPT, next);
  } catch {
    // A browser that keeps nothing has the system's colours again next time.
  }
  return next;
}

/** Puts on the colours that were chosen before. */
export function wearScheme() {
  try {
    wear(localStorage.getItem(KEPT) ?? SCHEMES[0]);
  } catch {
    wear(SCHEMES[0]);
  }
}

/** @param {string} scheme */
function wear(scheme) {
  const { dataset } = document.documentElement;
  if (scheme === "light" || scheme === "dark") dataset.scheme = scheme;
  else delete dataset.scheme;
}
