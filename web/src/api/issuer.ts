/** Signing in at an OpenID Connect issuer, in a window of its own: authorization code with PKCE (RFC 7636). */

import { sendJson, urlOf } from './client';
import { answerTo } from './signInChannel';

interface IssuerClient {
  issuer: string;
  authorization_endpoint: string;
  client_id: string;
  scope: string;
}

/** Returns a token of the issuer that this server accepts. It is called by a click, without which browsers open no window. */
export async function signInAtIssuer(signal: AbortSignal): Promise<string> {
  if (!isSecureContext) throw new Error('Signing in at the issuer needs https, or an address of this machine: ask the operator for it.');
  const redirect = urlOf('/sign-in');
  const popup = window.open(redirect, '_blank', 'popup,width=560,height=700');
  if (popup === null) throw new Error('The browser has not opened a window to sign in: allow this page to open one.');
  try {
    const client = await sendJson<IssuerClient>('/sign-in/client', {}, { signal });
    const [state, nonce, verifier] = [secret(), secret(), secret()];
    const url = await authorizationUrl(client, { state, nonce, verifier, redirect });
    popup.location.replace(url);
    // Not before: nobody is to wait if there is no such URL. The issuer answers later than this line is reached.
    const { code, error, iss } = await answerTo(state, signal);
    if (iss !== null && iss !== client.issuer) throw new Error('Another issuer than that of this server has answered: sign in again.');
    if (code === null) throw new Error(`The issuer signs nobody in: ${error ?? 'it gives no code'}.`);
    const body = { code, verifier, nonce, redirect_uri: redirect };
    return (await sendJson<{ token: string }>('/sign-in/token', {}, { method: 'POST', body, signal })).token;
  } finally {
    popup.close();
  }
}

/** 256 random bits as text. */
function secret(): string {
  return encoded(crypto.getRandomValues(new Uint8Array(32)));
}

interface Asked {
  state: string;
  nonce: string;
  verifier: string;
  redirect: string;
}

async function authorizationUrl(client: IssuerClient, { state, nonce, verifier, redirect }: Asked): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
  const url = new URL(client.authorization_endpoint);
  const parameters = {
    response_type: 'code',
    client_id: client.client_id,
    redirect_uri: redirect,
    scope: client.scope,
    state,
    nonce,
    code_challenge: encoded(new Uint8Array(digest)),
    code_challenge_method: 'S256',
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return url.href;
}

/** Returns bytes as base64url without padding (RFC 4648, section 5). */
function encoded(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');
}
