/** What a folder has: folders and domains, as a table that can be searched and sorted. */

import { useState } from 'react';
import { type Address, formatAddress, nameOf } from '../address';
import { sendJson } from '../api/client';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { Acls } from './Acls';
import { ErrorNotice } from './ErrorNotice';
import { formatBytes, formatCount, formatTime } from './format';

interface Entry {
  name: string;
  class: string;
  owner?: string;
  created?: number;
  lastModified?: number;
  total_size?: number;
  num_datasets?: number;
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

interface Props {
  address: Address;
  folder: Domain | undefined;
}

export function FolderView({ address, folder }: Props) {
  const { domain, bucket } = address;
  const [typed, setTyped] = useState('');
  const [order, setOrder] = useState<{ by: Column; down: boolean }>({ by: 'name', down: false });
  const listing = useLoad(`${bucket ?? ''} ${domain}`, async (signal) => {
    const query = { domain: `${domain.replace(/\/$/, '')}/`, bucket, verbose: 1, Limit: PAGE };
    return (await sendJson<{ domains: Entry[] }>('/domains', query, { signal })).domains;
  });
  const found = (listing.value ?? []).filter((entry) => nameOf(entry.name).toLowerCase().includes(typed.toLowerCase()));
  const sorted = [...found].sort((a, b) => compare(a[order.by], b[order.by]) * (order.down ? -1 : 1));
  return (
    <section aria-labelledby="folderName">
      <h1 id="folderName">{domain === '/' ? 'Domains' : nameOf(domain)}</h1>
      <div className="bar">
        <label>
          Search <input type="search" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
        <span className="quiet" role="status">
          {listing.value === undefined ? '' : `${formatCount(found.length)} of ${formatCount(listing.value.length)}`}
          {(listing.value?.length ?? 0) >= PAGE && '; the first thousand are listed'}
        </span>
      </div>
      {listing.error !== undefined && <ErrorNotice error={listing.error} retry={listing.reload} />}
      {listing.value !== undefined && (
        <div className="scroll" tabIndex={0} role="group" aria-label="Domains">
          <table>
            <thead>
              <tr>
                {COLUMNS.map(([by, title]) => (
                  <th key={by} aria-sort={order.by !== by ? 'none' : order.down ? 'descending' : 'ascending'}>
                    <button className="plain" onClick={() => setOrder({ by, down: order.by === by && !order.down })}>
                      {title}
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {sorted.map((entry) => (
                <tr key={entry.name}>
                  <td>
                    <a href={formatAddress({ domain: entry.name, bucket, path: '/' })}>
                      {nameOf(entry.name)}
                      {entry.class === 'folder' ? '/' : ''}
                    </a>
                  </td>
                  <td>{entry.owner ?? ''}</td>
                  <td>{formatTime(entry.lastModified)}</td>
                  <td className="number">{entry.num_datasets ?? ''}</td>
                  <td className="number">{entry.total_size === undefined ? '' : formatBytes(entry.total_size)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {sorted.length === 0 && <p className="notice">Nothing here{typed !== '' && ' has such a name'}.</p>}
        </div>
      )}
      {folder !== undefined && <Acls domain={folder} />}
    </section>
  );
}

function compare(a: string | number | undefined, b: string | number | undefined): number {
  if (typeof a === 'number' || typeof b === 'number') return Number(a ?? -1) - Number(b ?? -1);
  return (a ?? '').localeCompare(b ?? '');
}
