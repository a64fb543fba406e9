/** What can be done with an entry of a folder by whoever may: renamed, copied, deleted. */

import { useEffect, useState } from 'react';
import { nameOf, parentOf } from '../address';
import { type Count, countBelow, deletePlace, deleteTree, MOST_COUNTED, Mover, pathIn, type Place, requireFree, RIGHTS } from '../api/deeds';
import { followJob, type Job, startJob } from '../api/jobs';
import type { Rights } from '../api/rights';
import { Dialog, DialogForm } from './Dialog';
import { ErrorNotice } from './ErrorNotice';
import { formatCount } from './format';
import type { NewTask } from './useTasks';

type Deed = 'Rename' | 'Copy' | 'Delete';

export interface DeedProps {
  place: Place;
  isFolder: boolean;
  isAdmin: boolean;
  /** Runs what takes its time. */
  run: (task: NewTask) => void;
  /** Is told what was done at once. */
  done: (said: string) => void;
}

interface Props extends DeedProps {
  /** Those of who is signed in to it, and whether new things may be made beside it. */
  rights: Rights | undefined;
  mayCreate: boolean;
  /** Of an upload there is a button that deletes it. */
  isUpload: boolean;
}

export function EntryDeeds({ rights, mayCreate, isUpload, ...props }: Props) {
  const { place, isFolder, isAdmin } = props;
  const [isOpen, setIsOpen] = useState(false);
  const [deed, setDeed] = useState<Deed>();
  const deeds: Deed[] = [];
  if (rights === undefined) return null;
  if (mayCreate && RIGHTS.every((right) => rights[right])) deeds.push('Rename');
  if (mayCreate && rights.read && !isFolder && place.bucket === undefined) deeds.push('Copy');
  if (rights.delete && (isAdmin || parentOf(place.path) !== '/')) deeds.push('Delete');
  if (deeds.length === 0) return null;
  const name = nameOf(place.path);
  const close = () => {
    setIsOpen(false);
    setDeed(undefined);
  };
  return (
    <>
      <button aria-label={`Change ${name}`} aria-haspopup="dialog" onClick={() => setIsOpen(true)}>
        …
      </button>
      {isUpload && deeds.includes('Delete') && (
        <button
          aria-label={`Delete ${name}`}
          onClick={() => {
            setDeed('Delete');
            setIsOpen(true);
          }}
        >
          Delete
        </button>
      )}
      {isOpen && (
        <Dialog title={deed === undefined ? name : `${deed} ${name}`} close={close}>
          {deed === undefined && (
            <div className="bar">
              {deeds.map((one) => (
                <button key={one} onClick={() => setDeed(one)}>
                  {one}…
                </button>
              ))}
              <button onClick={close}>Cancel</button>
            </div>
          )}
          {deed === 'Rename' && <RenameForm {...props} close={close} />}
          {deed === 'Copy' && <CopyForm {...props} close={close} />}
          {deed === 'Delete' && <DeleteForm {...props} close={close} />}
        </Dialog>
      )}
    </>
  );
}

type FormProps = DeedProps & { close: () => void };

function RenameForm({ place, isFolder, isAdmin, run, done, close }: FormProps) {
  const [name, setName] = useState(nameOf(place.path));
  const [folder, setFolder] = useState(parentOf(place.path));
  const submit = async () => {
    const to = pathIn(folder, name);
    const said = `${place.path} is ${to} now.`;
    if (!isFolder) {
      await new Mover(place.bucket, isAdmin, () => undefined, new AbortController().signal).move(place.path, to);
      done(said);
      return;
    }
    if (to === place.path) throw new Error('That is its name already.');
    await requireFree({ ...place, path: to });
    let moved = 0;
    let mover: Mover | undefined;
    run({
      title: `Rename ${place.path} to ${to}`,
      work: async (report, signal) => {
        const count = () => report({ text: 'renamed', done: (moved += 1), unit: 'names' });
        mover = mover === undefined ? new Mover(place.bucket, isAdmin, count, signal) : mover.again(count, signal);
        await mover.move(place.path, to);
        return { said, link: { domain: to, bucket: place.bucket, path: '/' } };
      },
    });
  };
  return (
    <DialogForm name="Rename" submit={submit} close={close}>
      <NameFields name={name} setName={setName} folder={folder} setFolder={setFolder} />
      <p className="quiet">
        {isFolder ? 'All that is in it is moved, one after the other; you need all rights in each.' : 'Its objects stay where they are; only its name is another one.'} Its rights are kept.
      </p>
    </DialogForm>
  );
}

function CopyForm({ place, run, close }: FormProps) {
  const [name, setName] = useState(copyName(nameOf(place.path)));
  const [folder, setFolder] = useState(parentOf(place.path));
  const submit = async (signal: AbortSignal) => {
    const to = pathIn(folder, name);
    const request = { kind: 'copy', domain: to, source: place.path } as const;
    let job: Job | undefined = await startJob(request, signal);
    run({
      title: `Copy ${place.path} to ${to}`,
      work: async (report, stopped) => {
        const started = job ?? (await startJob(request, stopped));
        job = undefined;
        await followJob(started, ({ status, done, total }) => report({ text: status, done, total, unit: 'bytes' }), stopped);
        return { said: 'copied', link: { domain: to, path: '/' } };
      },
    });
  };
  return (
    <DialogForm name="Copy" submit={submit} close={close}>
      <NameFields name={name} setName={setName} folder={folder} setFolder={setFolder} />
      <p className="quiet">The server copies it with all its objects, also when this page is closed.</p>
    </DialogForm>
  );
}

function copyName(name: string): string {
  const dot = name.lastIndexOf('.');
  return dot > 0 ? `${name.slice(0, dot)} copy${name.slice(dot)}` : `${name} copy`;
}

interface NameProps {
  name: string;
  setName: (name: string) => void;
  folder: string;
  setFolder: (folder: string) => void;
}

function NameFields({ name, setName, folder, setFolder }: NameProps) {
  return (
    <>
      <label>
        Name <input value={name} required autoFocus onChange={(event) => setName(event.target.value)} />
      </label>
      <label>
        In folder <input value={folder} required onChange={(event) => setFolder(event.target.value)} />
      </label>
    </>
  );
}

function DeleteForm({ place, isFolder, run, done, close }: FormProps) {
  const [count, setCount] = useState<Count>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    if (!isFolder) return undefined;
    const abort = new AbortController();
    countBelow(place, abort.signal).then(setCount, (failure: unknown) => {
      if (!abort.signal.aborted) setError(failure);
    });
    return () => abort.abort();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- counted once, when it is asked for
  }, []);
  const inside = count === undefined ? 0 : count.domains + count.folders;
  const submit = async () => {
    if (inside === 0) {
      await deletePlace(place);
      done(`${place.path} is deleted.`);
      return;
    }
    run({
      title: `Delete ${place.path}`,
      work: async (report, signal) => {
        let gone = 0;
        await deleteTree(place, () => report({ text: 'deleted', done: (gone += 1), total: inside < MOST_COUNTED ? inside + 1 : undefined, unit: 'names' }), signal);
        return { said: `deleted, ${formatCount(gone)} in all` };
      },
    });
  };
  const isCounted = !isFolder || count !== undefined;
  return (
    <DialogForm name={inside > 0 ? `Delete all ${countText(inside + 1)}` : 'Delete'} isDanger isReady={isCounted} submit={submit} close={close}>
      <p>
        {isFolder ? 'The folder' : 'The domain'} <strong className="path">{place.path}</strong>{' '}
        {!isFolder ? 'is deleted with all its objects.' : !isCounted ? 'is looked through…' : inside === 0 ? 'is empty.' : `is deleted with all that is in it: ${belowText(count)}.`}{' '}
        Nothing brings it back.
      </p>
      {error !== undefined && <ErrorNotice error={error} />}
    </DialogForm>
  );
}

function countText(count: number): string {
  return count > MOST_COUNTED ? `${formatCount(MOST_COUNTED)} or more` : formatCount(count);
}

function belowText({ domains, folders }: Count = { domains: 0, folders: 0 }): string {
  const least = domains + folders >= MOST_COUNTED ? 'at least ' : '';
  const parts = [[domains, 'domain'] as const, [folders, 'folder'] as const].filter(([count]) => count > 0);
  return least + parts.map(([count, what]) => `${formatCount(count)} ${what}${count === 1 ? '' : 's'}`).join(' and ');
}
