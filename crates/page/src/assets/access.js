// Logging in and out.

import { h, panel, quiet } from "./dom.js";
import { change } from "./server.js";

// Browsers send no cookie of this page to a frame of another site, which sees nothing of the page above it.
const IS_IN_FOREIGN_FRAME = (() => {
  try {
    return window.top.location.origin !== location.origin;
  } catch {
    return true;
  }
})();
const OWN_TAB = { href: ".", target: "_blank", rel: "noopener" };
let loginError = null;

// Whether a visitor may use a view that needs this.
const MAY = {
  figures: () => true,
  pictures: (visitor) => visitor !== "stranger",
  login: (visitor) => visitor === "logged_in",
};
export const may = ({ needs }, { visitor }) => MAY[needs](visitor);

// In place of a view that the visitor may not use.
export function refusal({ title, needs }, status) {
  const what = needs === "login" ? "changes cameras" : "shows pictures and texts";
  const how = status.has_login
    ? ["log in above"]
    : ["set ", h("code", {}, "http.tokens"), " in the configuration and log in here with one of them"];
  return panel("refusal", title, null, h("p", {}, `This page ${what}. To use it, `, how, "."));
}

// Who may see pictures, and how to become one of them. A visitor of this machine needs no login where there is none.
export function access({ visitor, has_login: hasLogin }) {
  if (visitor === "logged_in")
    return h("form", { id: "logout", class: "access" }, h("button", {}, "Log out"), loginError && h("p", { role: "alert" }, loginError));
  if (visitor !== "stranger") return null;
  if (!hasLogin)
    return quiet("Pictures and texts are shown on the machine of Spotter alone, because this page has no login. To show them here, set ", h("code", {}, "http.tokens"), ". ", h("a", { href: "#help/page.md/who-may" }, "Who may see what"), ".");
  if (IS_IN_FOREIGN_FRAME)
    return h("p", { class: "access" }, "To see pictures, ", h("a", OWN_TAB, "log in in a tab of its own"), ".");
  return h("form", { id: "login", class: "access" },
    // For managers of passwords, which keep a token under a name.
    h("input", { type: "text", autocomplete: "username", value: "spotter", hidden: "", readonly: "" }),
    h("label", { for: "token" }, "Token, to see pictures"),
    h("input", { id: "token", type: "password", autocomplete: "current-password", required: "", "aria-describedby": loginError && "login-error" }),
    h("button", {}, "Log in"),
    loginError && h("p", { id: "login-error", role: "alert" }, loginError));
}

// Sends the form of a login or a logout.
export async function submitAccess({ id }) {
  const field = document.getElementById("token");
  loginError = await change(id, id === "login" ? { token: field.value } : {});
  if (loginError === null && field) field.value = "";
}
