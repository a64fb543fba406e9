/** One object of a domain: what it is, its attributes, and its displays as tabs. */

import { useState } from 'react';
import { type Address, formatAddress, nameOf } from '../address';
import { findAnnData } from '../anndata/anndata';
import { EmbeddingView } from '../anndata/EmbeddingView';
import { frameAt } from '../anndata/frame';
import { FrameView } from '../anndata/FrameView';
import { collectionOf, type Domain, dimsOf, type HdfObject, isSparse } from '../api/hdf';
import { elsewhere } from '../api/links';
import { typeText } from '../api/types';
import { Acls } from '../shell/Acls';
import { ErrorBoundary, ErrorNotice } from '../shell/ErrorNotice';
import { formatTime } from '../shell/format';
import { SnapshotBanner, Snapshots } from '../shell/Snapshots';
import { PictureView } from '../sparse/PictureView';
import { TableView } from '../sparse/TableView';
import { ChunksView } from './ChunksView';
import { Actions } from './Actions';
import { Attributes } from './Attributes';
import { DenseView } from './DenseView';
import { useDomainCounts, useFreshExtent } from './freshness';
import { LiveSwitch } from './LiveSwitch';
import { Members } from './Members';
import { findPlot } from './nexus';
import { NexusView } from './NexusView';

type View = 'picture' | 'table' | 'frame' | 'display' | 'chunks' | 'members' | 'plot' | 'embedding';
const TITLES: Record<View, string> = {
  picture: 'Picture',
  table: 'Table',
  frame: 'Table',
  display: 'Display',
  chunks: 'Chunks',
  members: 'Members',
  plot: 'NeXus plot',
  embedding: 'Embedding',
};

interface Props {
  domain: Domain;
  address: Address;
  /** The name of who is signed in. */
  user: string | undefined;
  /** Puts another domain in the place of this one. */
  change: (next: (domain: Domain) => Domain) => void;
  /** Loads the domain again. */
  reload: () => void;
}

export function ObjectView({ domain, address, user, change, reload }: Props) {
  const [live, setLive] = useState(false);
  const object = domain.resolve(address.path);
  const changeObject = (changed: Partial<HdfObject>) => change((one) => (object === undefined ? one : one.with(object.id, changed)));
  useFreshExtent(domain, object, changeObject);
  const counts = useDomainCounts(domain, address.path === '/');
  if (object === undefined) return <Missing domain={domain} address={address} />;
  const views = viewsOf(domain, object, address.path);
  const view = views.find((one) => one === address.view) ?? views[0];
  return (
    <article aria-labelledby="objectName">
      <div className="title">
        <h1 id="objectName">{address.path === '/' ? nameOf(domain.path) : nameOf(address.path)}</h1>
        <span className="quiet">{summary(domain, object, address.path, counts?.lastModified ?? 0)}</span>
        {collectionOf(object) === 'datasets' && (
          <LiveSwitch domain={domain} object={object} live={live} onSwitch={setLive} onChange={changeObject} />
        )}
      </div>
      <SnapshotBanner domain={domain} />
      <Actions domain={domain} object={object} address={address} user={user} counts={counts} />
      {views.length > 1 && (
        <nav className="tabs" aria-label="Displays">
          {views.map((one) => (
            <a key={one} aria-current={one === view ? 'page' : undefined} href={formatAddress({ ...address, view: one })}>
              {TITLES[one]}
            </a>
          ))}
        </nav>
      )}
      <ErrorBoundary key={`${object.id} ${view}`} of={formatAddress(address)}>
        <ViewOf view={view} domain={domain} object={object} address={address} live={live} />
      </ErrorBoundary>
      <Attributes key={object.id} domain={domain} object={object} onChange={changeObject} />
      {address.path === '/' && <Snapshots domain={domain} reload={reload} />}
      {address.path === '/' && <Acls domain={domain} />}
    </article>
  );
}

/** What is at a path without an object here: a way into another domain, or nothing. */
function Missing({ domain, address }: { domain: Domain; address: Address }) {
  const away = elsewhere(domain, address.path);
  return (
    <>
      <h1>{nameOf(address.path)}</h1>
      {away === undefined ? (
        <ErrorNotice error={new Error(`There is nothing at ${address.path} in ${domain.path}. Choose an object in the tree.`)} />
      ) : (
        <p className="notice">
          {address.path} is in another domain: <a href={formatAddress(away)}>{`${away.domain}${away.path === '/' ? '' : ` ${away.path}`}`}</a>
        </p>
      )}
    </>
  );
}

interface ViewProps {
  view: View | undefined;
  domain: Domain;
  object: HdfObject;
  address: Address;
  /** Whether a dataset that grows is followed. */
  live: boolean;
}

function ViewOf({ view, domain, object, address, live }: ViewProps) {
  switch (view) {
    case 'picture':
      return <PictureView domain={domain} object={object} address={address} live={live} />;
    case 'table':
      return <TableView domain={domain} object={object} address={address} />;
    case 'frame':
      return <FrameView domain={domain} address={address} />;
    case 'display':
      return <DenseView domain={domain} object={object} address={address} />;
    case 'chunks':
      return <ChunksView domain={domain} object={object} />;
    case 'members':
      return <Members domain={domain} group={object} address={address} />;
    case 'embedding':
      return <EmbeddingView domain={domain} address={address} />;
    case 'plot':
      return <NexusView domain={domain} address={address} />;
    default:
      return null;
  }
}

function viewsOf(domain: Domain, object: HdfObject, path: string): View[] {
  const collection = collectionOf(object);
  if (collection === 'datatypes') return [];
  if (collection === 'groups') {
    const plot = findPlot(domain, path);
    const cells = path === '/' ? findAnnData(domain) : undefined;
    const views: View[] = plot === undefined ? ['members'] : plot.signal === undefined ? ['members', 'plot'] : ['plot', 'members'];
    if (frameAt(domain, path) !== undefined) views.unshift('frame');
    return [...views, ...(cells !== undefined && cells.embeddings.length > 0 ? (['embedding'] as const) : [])];
  }
  if (isSparse(object)) return ['picture', 'table', 'chunks'];
  const frame = frameAt(domain, path) === undefined ? [] : (['frame'] as const);
  return dimsOf(object).length > 0 ? [...frame, 'display', 'chunks'] : ['display'];
}

function summary(domain: Domain, object: HdfObject, path: string, domainChanged: number): string {
  const parts: string[] = [];
  if (object.type !== undefined) parts.push(typeText(object.type));
  if (collectionOf(object) === 'datasets') {
    const dims = dimsOf(object);
    parts.push(object.shape?.class === 'H5S_NULL' ? 'null' : dims.length === 0 ? 'scalar' : dims.join(' × '));
    if (isSparse(object)) parts.push('sparse');
    const lower = object.shape?.lower;
    if (lower !== undefined) parts.push(`from the place ${lower.join(', ')} on`);
    const chunk = object.layout?.dims;
    if (chunk !== undefined && dims.length > 0) parts.push(`chunks of ${chunk.join(' × ')}`);
  }
  if (path === '/') parts.push(`of ${domain.record.owner}`);
  const changed = formatTime(Math.max(object.lastModified ?? 0, domainChanged));
  if (changed !== '') parts.push(`changed ${changed} UTC`);
  return parts.join(' · ');
}
