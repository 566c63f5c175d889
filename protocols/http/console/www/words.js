/** Texts in the reader's language: the English text is the key. */

const STORED = "language";
const CHINESE = "zh-CN";

/** Languages of the console: [value that is kept, its own name]. @type {[string, string][]} */
export const CHOICES = [["en", "English"], [CHINESE, "中文"]];

/** The language that the reader chose here; "": none, so the browser's holds. */
export const choice = localStorage.getItem(STORED) ?? "";

/** @param {string} name */
const isChinese = (name) => name.toLowerCase().startsWith("zh");

/** The language of the console, as `lang` and `Intl` name it. */
export const language = isChinese(choice || navigator.language) ? CHINESE : "en";

/** The language of times: those who read English have them as their browser writes them. @type {string | undefined} */
export const timeLocale = isChinese(language) || isChinese(navigator.language) ? language : undefined;

/** Texts that were asked for and have no translation, for tests. @type {Set<string>} */
export const misses = new Set();

/**
 * Translations by English texts. Modules that import this one wait for them, so their constants may be texts, too.
 * Without the file the console is there in English. @type {Record<string, string>}
 */
const translations = isChinese(language) ? await import("./zh.js").then((found) => found.default, () => ({})) : {};

document.documentElement.lang = language;

/**
 * A text in the reader's language.
 * @param {string} text in English, with `{name}` where a value goes
 * @param {Record<string, any>} [values] texts, numbers or parts of a page
 * @param {string} [sense] tells texts apart that only English has the same word for; the key is then `text|sense`
 * @returns {any} a text; a list of texts and parts if a value is a part
 */
export function t(text, values = {}, sense) {
  const key = sense === undefined ? text : `${text}|${sense}`;
  const translated = translations[key];
  if (translated === undefined && language !== "en") misses.add(key);
  const pieces = (translated ?? text).split(/\{(\w+)\}/).map((piece, at) => (at % 2 ? values[piece] : piece));
  return pieces.some((piece) => piece !== null && typeof piece === "object") ? pieces : pieces.join("");
}

const numbers = new Intl.NumberFormat(language, { maximumFractionDigits: 0 });
const plurals = new Intl.PluralRules(language);

/**
 * A text about so many things, which is another one for 1 in English.
 * @param {number} n @param {string} one for 1 @param {string} other the key of its translation: Chinese has one form
 * @param {Record<string, any>} [values] besides `n`
 * @returns {any} as `t`
 */
export function many(n, one, other, values = {}) {
  return t(language === "en" && plurals.select(n) === "one" ? one : other, { n: numbers.format(n), ...values });
}

/** Keep what the reader chose, and show it. @param {string} name "": as the browser */
export function choose(name) {
  if (name) localStorage.setItem(STORED, name);
  else localStorage.removeItem(STORED);
  location.reload();
}
