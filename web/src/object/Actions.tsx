/** What can be done with an object: copy a line for a program, save a selection or the domain's file. */

import { useEffect, useRef, useState } from 'react';
import { type Address, nameOf } from '../address';
import { untilAnswered } from '../api/client';
import { collectionOf, type Domain, dimsOf, type HdfObject } from '../api/hdf';
import { useSignedIn } from '../api/load';
import { parseSelect, wholeOf } from '../api/values';
import { ErrorNotice } from '../shell/ErrorNotice';
import { fileName, type Format, formatsOf, saveFile, saveSelection } from './downloads';
import { curlSnippet, fileUrl, pythonSnippet, type Runner } from './snippets';

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
  user: string | undefined;
}

export function Actions({ domain, object, address, user: name }: Props) {
  const signedIn = useSignedIn();
  const [said, setSaid] = useState('');
  const [failed, setFailed] = useState<{ error: unknown; retry: () => void }>();
  const shown = useRef<AbortController>();
  useEffect(() => {
    const abort = new AbortController();
    shown.current = abort;
    return () => abort.abort();
  }, []);
  const runner: Runner = signedIn === 'password' && name !== undefined ? { user: name } : signedIn === 'key' ? 'key' : undefined;
  const dims = dimsOf(object);
  const spans = parseSelect(address.select, dims) ?? wholeOf(dims);
  const isData = collectionOf(object) === 'datasets' && object.shape?.class !== 'H5S_NULL';
  const attempt: Attempt = (work, done) => {
    setFailed(undefined);
    setSaid('');
    const signal = shown.current?.signal;
    const fail = (error: unknown) => {
      if (!signal?.aborted) setFailed({ error, retry: () => attempt(work, done) });
    };
    const onWait = ({ message }: Error) => setSaid(`${message} This page asks again.`);
    untilAnswered(work, signal, onWait).then(() => setSaid(done), fail);
  };
  const copy = (text: string, what: string) => attempt(() => copyText(text), `${what} copied`);
  return (
    <div className="bar actions">
      <button onClick={() => copy(pythonSnippet(domain, address.path, object, spans, runner), 'Python')}>Copy as Python</button>
      <button onClick={() => copy(curlSnippet(domain, object, spans, runner), 'curl')}>Copy as curl</button>
      {isData &&
        formatsOf(object).map((format: Format) => (
          <button key={format} onClick={() => attempt(() => saveSelection(domain, object, spans, nameOf(address.path), format), 'Saved')}>
            Save {format === 'arrow' ? 'Arrow' : format.toUpperCase()}
          </button>
        ))}
      {address.path === '/' && <FileLinks domain={domain} signedIn={signedIn !== undefined} attempt={attempt} />}
      <span role="status" className="quiet">
        {said}
      </span>
      {failed !== undefined && <ErrorNotice {...failed} />}
    </div>
  );
}

type Attempt = (work: () => Promise<void>, done: string) => void;

interface LinkProps {
  domain: Domain;
  signedIn: boolean;
  attempt: Attempt;
}

/** Downloads of the domain. A browser sends no credentials of this page with a link, so then the page asks itself. */
function FileLinks({ domain, signedIn, attempt }: LinkProps) {
  const name = nameOf(domain.path);
  const layouts: [string, string | undefined][] = [
    [name.endsWith('.h5ad') ? 'Download .h5ad' : 'Download .h5', undefined],
    ['Download structured .h5', 'structured'],
  ];
  return layouts.map(([title, layout]) =>
    signedIn ? (
      <button key={title} onClick={() => attempt(() => saveFile(domain, layout), 'Saved')}>
        {title}
      </button>
    ) : (
      <a key={title} className="button" href={fileUrl(domain, layout)} download={fileName(domain)}>
        {title}
      </a>
    ),
  );
}

/** Copies text; without the browser's clipboard, which pages of plain HTTP do not have, by a selection. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const field = document.createElement('textarea');
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  if (!done) throw new Error(`Copy it by hand: ${text}`);
}
