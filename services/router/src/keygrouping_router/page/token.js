// Asks for the bearer token when the router wants one. It stays in this page's memory and is stored nowhere.

import { byId, write } from "./dom.js";

/** Opens the dialog; gives what was entered, or null. `refused`: the token before was not the right one. */
export function enterToken(refused) {
  const dialog = byId("token");
  const field = byId("token-value");
  write(byId("token-outcome"), refused ? "The previous token was refused." : "");
  byId("token-outcome").dataset.kind = "bad";
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    const given = (event) => {
      event.preventDefault();
      dialog.close(field.value.trim());
    };
    const cancel = () => dialog.close("");
    byId("token-form").addEventListener("submit", given);
    byId("token-cancel").addEventListener("click", cancel);
    dialog.addEventListener(
      "close",
      () => {
        byId("token-form").removeEventListener("submit", given);
        byId("token-cancel").removeEventListener("click", cancel);
        field.value = "";
        resolve(dialog.returnValue || null);
      },
      { once: true },
    );
  });
}
