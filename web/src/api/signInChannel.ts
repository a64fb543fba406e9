/** How the page to which an issuer sends people back talks to the one that waits: both are of this server. */

const CHANNEL = 'hsparse sign-in';

/** What the issuer says in the URL (RFC 6749, section 4.1.2; RFC 9207). A code is worth nothing without its verifier. */
export interface IssuerAnswer {
  state: string;
  code: string | null;
  error: string | null;
  iss: string | null;
}

type Message = { answer: IssuerAnswer } | { taken: string };

/** Waits for the answer to the request with this `state`; others are of other pages, or forged. */
export function answerTo(state: string, signal: AbortSignal): Promise<IssuerAnswer> {
  return new Promise((resolve, reject) => {
    const channel = new BroadcastChannel(CHANNEL);
    const onAbort = () => {
      channel.close();
      reject(new DOMException('Nobody waits any more.', 'AbortError'));
    };
    if (signal.aborted) return onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    channel.onmessage = ({ data }: MessageEvent<Message>) => {
      if (!('answer' in data) || data.answer.state !== state) return;
      signal.removeEventListener('abort', onAbort);
      channel.postMessage({ taken: state } satisfies Message);
      channel.close();
      resolve(data.answer);
    };
  });
}

/** Hands an answer to the page that waits for it; says whether one has taken it in so many milliseconds. */
export function handOver(answer: IssuerAnswer, patience: number): Promise<boolean> {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(CHANNEL);
    const end = (taken: boolean) => {
      clearTimeout(timer);
      channel.close();
      resolve(taken);
    };
    const timer = setTimeout(() => end(false), patience);
    channel.onmessage = ({ data }: MessageEvent<Message>) => {
      if ('taken' in data && data.taken === answer.state) end(true);
    };
    channel.postMessage({ answer } satisfies Message);
  });
}
