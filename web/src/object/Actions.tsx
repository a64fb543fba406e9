/** What can be done with an object: copy a line for a program, save a selection or the domain's file. */

import { useEffect, useRef, useState } from 'react';
import { type Address, nameOf } from '../address';
import { untilAnswered } from '../api/client';
import { collectionOf, type Domain, type HdfObject } from '../api/hdf';
import { useLoad, useSignedIn } from '../api/load';
import { extentOf, parseSelect } from '../api/values';
import { ErrorNotice } from '../shell/ErrorNotice';
import { formatBytes } from '../shell/format';
import { fileName, fileSize, type Format, formatsOf, saveFile, saveSelection } from './downloads';
import type { DomainCounts } from './freshness';
import { curlSnippet, fileUrl, pythonSnippet, type Runner } from './snippets';

interface Props {
  domain: Domain;
  object: HdfObject;
  address: Address;
  user: string | undefined;
  /** Of the domain, on its own page. */
  counts: DomainCounts | undefined;
}

export function Actions({ domain, object, address, user: name, counts }: Props) {
  const signedIn = useSignedIn();
  const [said, setSaid] = useState('');
  const [failed, setFailed] = useState<{ error: unknown; retry: () => void }>();
  const shown = useRef<AbortController>();
  useEffect(() => {
    const abort = new AbortController();
    shown.current = abort;
    return () => abort.abort();
  }, []);
  const runner: Runner = signedIn === 'key' || signedIn === 'issuer' ? 'key' : signedIn === 'password' && name !== undefined ? { user: name } : undefined;
  const extent = extentOf(object);
  const spans = parseSelect(address.select, extent) ?? extent;
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
      {address.path === '/' && <FileLinks domain={domain} counts={counts} signedIn={signedIn !== undefined} attempt={attempt} />}
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
  counts: DomainCounts | undefined;
  signedIn: boolean;
  attempt: Attempt;
}

/** Downloads of the domain, each with the size of its file. */
function FileLinks(props: LinkProps) {
  const name = nameOf(props.domain.path);
  return (
    <>
      <FileLink {...props} title={name.endsWith('.h5ad') ? 'Download .h5ad' : 'Download .h5'} layout={undefined} />
      <FileLink {...props} title="Download structured .h5" layout="structured" />
    </>
  );
}

/** The most stored chunks of a domain whose files' sizes are asked for unbidden: the server may have to look at all of them. */
const MAX_CHUNKS = 1000;

/** A download. A browser sends no credentials of this page with a link, so who is signed in has a button, and the page asks itself. */
function FileLink({ domain, counts, signedIn, attempt, title, layout }: LinkProps & { title: string; layout: string | undefined }) {
  const [isLookedAt, setIsLookedAt] = useState(false);
  const isAsked = isLookedAt || (counts !== undefined && counts.num_chunks <= MAX_CHUNKS);
  const size = useLoad(isAsked ? `${domain.path} ${domain.bucket} ${layout} ${counts?.lastModified}` : undefined, (signal) => fileSize(domain, layout, signal));
  const look = { onPointerEnter: () => setIsLookedAt(true), onFocus: () => setIsLookedAt(true) };
  return (
    <span>
      {signedIn ? (
        <button {...look} onClick={() => attempt(() => saveFile(domain, layout), 'Saved')}>
          {title}
        </button>
      ) : (
        <a {...look} className="button" href={fileUrl(domain, layout)} download={fileName(domain)}>
          {title}
        </a>
      )}{' '}
      <span className="quiet">{size.value !== undefined ? formatBytes(size.value) : isAsked && size.loading ? 'size…' : ''}</span>
    </span>
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
