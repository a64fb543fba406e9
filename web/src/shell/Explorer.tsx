/** The page: where one is, who one is, the tree at the left, and what is shown. */

import { useEffect, useState } from 'react';
import { type Address, formatAddress, nameOf, useAddress } from '../address';
import { type About, sendJson } from '../api/client';
import { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { ObjectView } from '../object/ObjectView';
import { ErrorBoundary, ErrorNotice } from './ErrorNotice';
import { FolderView } from './FolderView';
import { Jobs } from './Jobs';
import { SignIn } from './SignIn';
import { TaskList } from './TaskList';
import { Tree } from './Tree';
import { Users } from './Users';
import { useTasks } from './useTasks';

export function Explorer() {
  const address = useAddress();
  const about = useLoad('about', (signal) => sendJson<About>('/about', {}, { signal }));
  // The top level is no domain: it is listed, not loaded.
  const isTop = address.domain === '/';
  const place = `${address.bucket ?? ''} ${address.domain}`;
  const domain = useLoad(isTop ? undefined : place, (signal) => Domain.load(address.domain, address.bucket, signal));
  const isThis = domain.value?.path === address.domain && domain.value.bucket === address.bucket;
  const loaded = !isTop && isThis ? domain.value : undefined;
  const tasks = useTasks();
  const who = { user: about.value?.username, isAdmin: about.value?.isadmin === true };
  const [narrow, setNarrow] = useState(false);
  useEffect(() => {
    document.title = `${nameOf(address.path === '/' ? address.domain : address.path)} · hsparse`;
  }, [address.domain, address.path]);
  useEffect(() => {
    // A file that is dropped elsewhere would take the place of the page.
    const ignore = (event: DragEvent) => event.preventDefault();
    for (const name of ['dragover', 'drop'] as const) addEventListener(name, ignore);
    return () => {
      for (const name of ['dragover', 'drop'] as const) removeEventListener(name, ignore);
    };
  }, []);
  const hasTree = loaded !== undefined && !loaded.isFolder;
  return (
    <>
      <header>
        <a className="brand" href="#domain=/">
          hsparse
        </a>
        <Crumbs address={address} />
        {hasTree && (
          <button className="treeToggle" aria-expanded={narrow} onClick={() => setNarrow(!narrow)}>
            Tree
          </button>
        )}
        <SignIn about={about.value} error={about.error} />
      </header>
      <div className={`columns${hasTree ? ' withTree' : ''}${narrow ? ' treeOpen' : ''}`}>
        {hasTree && (
          <ErrorBoundary key={place} of={place}>
            <Tree domain={loaded} path={address.path} />
          </ErrorBoundary>
        )}
        <main>
          <TaskList tasks={tasks} />
          {domain.error !== undefined && !isTop && loaded === undefined && <h1>{nameOf(address.domain)}</h1>}
          {domain.error !== undefined && !isTop && <ErrorNotice error={domain.error} retry={domain.reload} />}
          {!isTop && loaded === undefined && domain.error === undefined && <p className="notice">Loading…</p>}
          <ErrorBoundary key={formatAddress({ ...address, view: undefined, select: undefined })} of={formatAddress(address)}>
            {isTop && <FolderView address={address} folder={undefined} tasks={tasks} {...who} />}
            {isTop && who.isAdmin && <Users />}
            {isTop && who.isAdmin && <Jobs />}
            {isTop && <Colophon version={about.value?.hsparse_version} />}
            {loaded?.isFolder === true && <FolderView address={address} folder={loaded} tasks={tasks} {...who} />}
            {hasTree && <ObjectView domain={loaded} address={address} user={about.value?.username} change={domain.change} reload={domain.reload} />}
          </ErrorBoundary>
        </main>
      </div>
    </>
  );
}

/** What this page is made of, and where programs find the same. */
function Colophon({ version }: { version: string | undefined }) {
  return (
    <p className="quiet">
      hsparse {version} · <a href="docs">API</a> · <a href="explorer/licences.txt">licences of what this page is made of</a>
    </p>
  );
}

/** The folders that lead to what is shown, each as a link. */
function Crumbs({ address }: { address: Address }) {
  const names = address.domain.split('/').filter((name) => name !== '');
  const inside = address.path.split('/').filter((name) => name !== '');
  const { bucket } = address;
  const to = (domain: string, path: string) => formatAddress({ domain, path, bucket });
  return (
    <nav className="crumbs" aria-label="Place">
      <a href={to('/', '/')}>{bucket ?? 'domains'}</a>
      {names.map((name, at) => (
        <span key={at}>
          {' / '}
          <a href={to(`/${names.slice(0, at + 1).join('/')}`, '/')}>{name}</a>
        </span>
      ))}
      {inside.map((name, at) => (
        <span key={`in ${at}`}>
          {at === 0 ? ' › ' : ' / '}
          <a href={to(address.domain, `/${inside.slice(0, at + 1).join('/')}`)}>{name}</a>
        </span>
      ))}
    </nav>
  );
}
