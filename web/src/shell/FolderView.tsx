/** What a folder has: folders and domains, as a table that can be searched and sorted, and is read on as it is scrolled. */

import { useEffect, useRef, useState } from 'react';
import { type Address, formatAddress, nameOf } from '../address';
import { ANONYMOUS, type Query, sendJson, untilAnswered } from '../api/client';
import type { Domain } from '../api/hdf';
import { useLoad, useSignedIn, useUsers } from '../api/load';
import { type Rights, useRights } from '../api/rights';
import { isUploadName } from '../api/upload';
import { importCommand } from '../object/snippets';
import { Acls } from './Acls';
import { EntryDeeds } from './EntryDeeds';
import { ErrorNotice } from './ErrorNotice';
import { formatBytes, formatCount, formatTime } from './format';
import { LongTable } from './LongTable';
import { NewFolder } from './NewFolder';
import { UnfinishedUpload } from './UnfinishedUpload';
import type { Tasks } from './useTasks';
import { FileButton, useUploads } from './useUploads';

interface Entry {
  name: string;
  class: string;
  root?: string;
  owner?: string;
  created?: number;
  lastModified?: number;
  total_size?: number;
  num_datasets?: number;
  /** Why it cannot be read, where that is known. */
  reason?: string;
  /** Of who is signed in. */
  rights?: Rights;
}

type Column = 'name' | 'owner' | 'lastModified' | 'num_datasets' | 'total_size';
const COLUMNS: [Column, string][] = [
  ['name', 'Name'],
  ['owner', 'Owner'],
  ['lastModified', 'Changed (UTC)'],
  ['num_datasets', 'Datasets'],
  ['total_size', 'Size'],
];
const PAGE = 1000;
/** The most letters that are looked for by the server, whose patterns have at most 256 characters. */
const MAX_TYPED = 60;

interface Props {
  address: Address;
  folder: Domain | undefined;
  /** The name that the server has for who looks. */
  user: string | undefined;
  isAdmin: boolean;
  tasks: Tasks;
}

export function FolderView({ address, folder, user, isAdmin, tasks }: Props) {
  const { domain, bucket } = address;
  const [said, setSaid] = useState('');
  const [typed, setTyped] = useState('');
  const [order, setOrder] = useState<Order>({ by: 'name', down: false });
  const place = `${bucket ?? ''} ${domain}`;
  const all = useLoad(place, (signal) => readPage(address, {}, signal));
  // What is not here the server looks for.
  const isAsked = typed !== '' && all.value?.isWhole === false;
  const matching = useLoad(isAsked ? `${place} ${typed}` : undefined, (signal) => readPage(address, { pattern: patternOf(typed) }, signal));
  const listing = isAsked && matching.isCurrent ? matching : all;
  const [more, setMore] = useState<unknown>();
  const [isAtEnd, setIsAtEnd] = useState(false);
  // Nobody makes anything without a name.
  const mayCreate = useRights({ path: domain, bucket }).create && user !== undefined && user !== ANONYMOUS;
  // The server imports into the first bucket alone.
  const mayImport = mayCreate && bucket === undefined;
  const uploads = useUploads(tasks.run);
  const reload = () => {
    all.reload();
    matching.reload();
  };
  useEffect(() => {
    if (tasks.ended > 0) reload();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each
  }, [tasks.ended]);
  const done = (what: string) => {
    setSaid(what);
    reload();
  };
  const reading = useRef<AbortController>();
  const users = useUsers();
  useEffect(() => {
    setMore(undefined);
    return () => reading.current?.abort();
  }, [place, typed, users]);
  const readMore = (after: Entry) => {
    reading.current?.abort();
    const { signal } = (reading.current = new AbortController());
    setMore(undefined);
    const query = { Marker: after.name, pattern: listing === all ? undefined : patternOf(typed) };
    const add = (page: Page) => {
      if (signal.aborted) return;
      setMore(undefined);
      listing.change((old) => (old.entries.at(-1) === after ? { ...page, entries: [...old.entries, ...page.entries] } : old));
    };
    const fail = (error: unknown) => {
      if (!signal.aborted) setMore(error);
    };
    untilAnswered(() => readPage(address, query, signal), signal, fail).then(add, fail);
  };
  const error = listing.error ?? (isAsked ? matching.error : undefined) ?? more;
  const entries = listing.value?.entries ?? [];
  const last = listing.value?.isWhole === false ? entries.at(-1) : undefined;
  const retry = more !== undefined && last !== undefined ? () => readMore(last) : isAsked ? matching.reload : all.reload;
  // In any other order than the server's, what is not read yet may be the first.
  const isReadOn = last !== undefined && (isAtEnd || order.by !== 'name' || order.down) && (!isAsked || listing === matching);
  useEffect(() => {
    if (isReadOn && last !== undefined) readMore(last);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once after each page
  }, [isReadOn, last]);
  const hasDeeds = user !== ANONYMOUS && (mayCreate || entries.some(({ rights }) => rights?.delete));
  const mayDrop = (entry: Entry) => mayImport && entry.class === 'folder' && entry.rights?.create === true;
  const found = entries.filter((entry) => nameOf(entry.name).toLowerCase().includes(typed.toLowerCase()));
  const sorted = sortedBy(found, order);
  return (
    <section aria-labelledby="folderName" className={uploads.over === domain ? 'over' : undefined} {...(mayImport ? uploads.zone(domain) : {})}>
      <h1 id="folderName">{domain === '/' ? 'Domains' : nameOf(domain)}</h1>
      <div className="bar">
        <label>
          Search <input type="search" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <span className="quiet" role="status">
          {listing.value === undefined ? '' : `${formatCount(found.length)} of ${formatCount(all.value?.entries.length ?? 0)}`}
          {all.value?.isWhole === false && ' or more'}
          {isAsked && !matching.isCurrent && matching.error === undefined && '; looking for others…'}
          {isReadOn && more === undefined && '; reading on…'}
        </span>
        {mayImport && <FileButton take={(files) => uploads.take(domain, files)} />}
        {mayCreate && <NewFolder folder={domain} bucket={bucket} done={done} />}
        <span role="status" className="quiet">
          {said}
        </span>
      </div>
      {error !== undefined && <ErrorNotice error={error} retry={retry} />}
      {listing.value !== undefined && (
        <>
          <LongTable
            label="Domains"
            items={sorted}
            keyOf={(entry) => entry.name}
            isWhole={last === undefined}
            onEnd={setIsAtEnd}
            head={
              <tr>
                {COLUMNS.map(([by, title]) => (
                  <th key={by} aria-sort={order.by !== by ? 'none' : order.down ? 'descending' : 'ascending'}>
                    <button className="plain" onClick={() => setOrder({ by, down: order.by === by && !order.down })}>
                      {title}
                    </button>
                  </th>
                ))}
                {hasDeeds && <th>Change</th>}
              </tr>
            }
            row={(entry, about) => (
              <tr {...about} className={uploads.over === entry.name ? 'over' : undefined} {...(mayDrop(entry) ? uploads.zone(entry.name) : {})}>
                <td>
                  <a href={formatAddress({ domain: entry.name, bucket, path: '/' })}>
                    {nameOf(entry.name)}
                    {entry.class === 'folder' ? '/' : ''}
                  </a>
                  {isUpload(entry) && <UnfinishedUpload path={entry.name} root={entry.root} bucket={bucket} version={tasks.ended} />}
                  {entry.reason !== undefined && <div className="quiet">{entry.reason}</div>}
                </td>
                <td>{entry.owner ?? ''}</td>
                <td>{formatTime(entry.lastModified)}</td>
                <td className="number">{entry.num_datasets ?? ''}</td>
                <td className="number">{entry.total_size === undefined ? '' : formatBytes(entry.total_size)}</td>
                {hasDeeds && (
                  <td>
                    <EntryDeeds
                      place={{ path: entry.name, bucket }}
                      isFolder={entry.class === 'folder'}
                      isUpload={isUpload(entry)}
                      rights={entry.rights}
                      mayCreate={mayCreate}
                      isAdmin={isAdmin}
                      run={tasks.run}
                      done={done}
                    />
                  </td>
                )}
              </tr>
            )}
          />
          {sorted.length === 0 && <p className="notice">Nothing here{typed !== '' && ' has such a name'}.</p>}
          {entries.length === 0 && typed === '' && user !== undefined && bucket === undefined && <HowDataGetsIn folder={domain} user={user} mayImport={mayImport} />}
        </>
      )}
      {folder !== undefined && <Acls domain={folder} />}
    </section>
  );
}

/** What to do on a page of nothing: the command that puts a file there. */
function HowDataGetsIn({ folder, user, mayImport }: { folder: string; user: string; mayImport: boolean }) {
  const signedIn = useSignedIn();
  const name = user === ANONYMOUS ? 'YOU' : user;
  const runner = signedIn === 'key' || signedIn === 'issuer' ? 'key' : signedIn === 'password' || user === ANONYMOUS ? { user: name } : undefined;
  return (
    <>
      <p>{mayImport ? 'Drop a file here, or use' : 'A file gets in by'} this command, where the file is:</p>
      <pre>
        <code>{importCommand(folder, name, runner)}</code>
      </pre>
    </>
  );
}

function isUpload(entry: Entry): entry is Entry & { root: string } {
  return entry.root !== undefined && isUploadName(entry.name);
}

interface Page {
  entries: Entry[];
  /** Whether there are no more. */
  isWhole: boolean;
}

async function readPage({ domain, bucket }: Address, part: Query, signal?: AbortSignal): Promise<Page> {
  const query = { domain: `${domain.replace(/\/$/, '')}/`, bucket, verbose: 1, include_rights: 1, Limit: PAGE, ...part };
  const entries = (await sendJson<{ domains: Entry[] }>('/domains', query, { signal })).domains;
  return { entries, isWhole: entries.length < PAGE };
}

/** Returns a pattern that names with a text match, in capitals or not; of a long text the beginning. */
function patternOf(text: string): string {
  const letters = Array.from(text.slice(0, MAX_TYPED), (letter) => {
    if (/[\][*?]/.test(letter)) return '?';
    const [low, high] = [letter.toLowerCase(), letter.toUpperCase()];
    return low === high || low.length + high.length > 2 ? letter : `[${low}${high}]`;
  });
  return `*${letters.join('')}*`;
}

interface Order {
  by: Column;
  down: boolean;
}

/** Returns entries, which are by name as the server has them, in another order. */
function sortedBy(entries: Entry[], { by, down }: Order): Entry[] {
  if (by === 'name') return down ? [...entries].reverse() : entries;
  return [...entries].sort((a, b) => compare(a[by], b[by]) * (down ? -1 : 1));
}

function compare(a: string | number | undefined, b: string | number | undefined): number {
  if (typeof a === 'number' || typeof b === 'number') return Number(a ?? -1) - Number(b ?? -1);
  return (a ?? '').localeCompare(b ?? '');
}
