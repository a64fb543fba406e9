/** The page to which an issuer sends people back: it hands what the URL says to the page that waits, and closes. */

import { handOver } from './api/signInChannel';
import './style.css';

/** Milliseconds in which a page that waits takes the answer. */
const PATIENCE = 3000;

const given = new URLSearchParams(location.search);
// The code is not to stay in the history.
history.replaceState(null, '', location.pathname);

function say(text: string): void {
  const notice = document.getElementById('notice');
  if (notice !== null) notice.textContent = text;
}

async function answer(state: string): Promise<void> {
  const taken = await handOver({ state, code: given.get('code'), error: given.get('error'), iss: given.get('iss') }, PATIENCE);
  if (!taken) return say('No page of the explorer waits for this sign-in. Close this window, and sign in again from the explorer.');
  say('The explorer has the answer. Close this window.');
  window.close();
}

const state = given.get('state');
if (state === null) say('The explorer opens the issuer’s page here.');
else void answer(state);
