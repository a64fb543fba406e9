/** The past of a domain: its snapshots, each a way to what was there, and what is done with them by whoever may. */

import { useState } from 'react';
import { formatAddress, nameOf } from '../address';
import { sendJson } from '../api/client';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { useRights } from '../api/rights';
import { headOf, listSnapshots, type Snapshot } from '../api/snapshots';
import { Dialog, DialogForm } from './Dialog';
import { ErrorNotice } from './ErrorNotice';
import { cut, formatTime } from './format';

/** The most characters of a message, as the server says. */
const MOST = 4096;

/** On the page of a snapshot, whose it is; nothing on others. */
export function SnapshotBanner({ domain }: { domain: Domain }) {
  const head = headOf(domain);
  const number = domain.record.snapshot;
  const { value } = useLoad(head === undefined ? undefined : `${domain.bucket} ${head} ${number}`, (signal) =>
    sendJson<Snapshot>(`/snapshots/${number}`, { ...domain.query, domain: head }, { signal }),
  );
  if (head === undefined) return null;
  return (
    <p className="notice" role="note" aria-label="Snapshot">
      Snapshot {number}
      {value !== undefined && `, of ${formatTime(value.time)} UTC by ${value.author}`}
      {value !== undefined && value.message !== '' && `: ${cut(value.message)}`}. It never changes.{' '}
      <a href={formatAddress({ domain: head, bucket: domain.bucket, path: '/' })}>{nameOf(head)} as it is now</a>
    </p>
  );
}

interface Props {
  domain: Domain;
  /** Loads the domain again. */
  reload: () => void;
}

export function Snapshots({ domain, reload }: Props) {
  const [open, setOpen] = useState(false);
  // A snapshot has none of its own.
  if (domain.record.snapshot !== undefined) return null;
  const place = `${domain.bucket} ${domain.path}`;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Snapshots</summary>
      {open && <SnapshotTable key={place} domain={domain} reload={reload} />}
    </details>
  );
}

function SnapshotTable({ domain, reload }: Props) {
  const rights = useRights(domain);
  const [asked, setAsked] = useState<Snapshot>();
  const [said, setSaid] = useState('');
  const listed = useLoad(`${domain.bucket} ${domain.path}`, (signal) => listSnapshots(domain, signal));
  const restore = async ({ snapshot }: Snapshot) => {
    await sendJson(`/snapshots/${snapshot}/restore`, domain.query, { method: 'POST' });
    setSaid(`The domain is as it was at snapshot ${snapshot}.`);
    reload();
  };
  return (
    <>
      {listed.error !== undefined && <ErrorNotice error={listed.error} retry={listed.reload} />}
      {listed.value?.length === 0 && <p className="notice">There are none yet.</p>}
      {listed.value !== undefined && listed.value.length > 0 && (
        <table aria-label="Snapshots">
          <thead>
            <tr>
              <th>Number</th>
              <th>Taken (UTC)</th>
              <th>Author</th>
              <th>Message</th>
              {rights.update && <th>Change</th>}
            </tr>
          </thead>
          <tbody>
            {listed.value.map((one) => (
              <tr key={one.snapshot}>
                <td>
                  <a href={formatAddress({ ...domain.query, domain: `${domain.path}@${one.snapshot}`, path: '/' })}>{one.snapshot}</a>
                </td>
                <td>{formatTime(one.time)}</td>
                <td>{one.author}</td>
                <td>{cut(one.message)}</td>
                {rights.update && (
                  <td>
                    <button aria-label={`Restore snapshot ${one.snapshot}`} aria-haspopup="dialog" onClick={() => setAsked(one)}>
                      Restore…
                    </button>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {rights.update && <TakeSnapshot domain={domain} done={listed.reload} />}
      <p role="status" className="quiet">
        {said}
      </p>
      {asked !== undefined && (
        <Dialog title={`Restore snapshot ${asked.snapshot}`} close={() => setAsked(undefined)}>
          <DialogForm name="Restore" isDanger submit={() => restore(asked)} close={() => setAsked(undefined)}>
            <p>
              {domain.path} becomes what it was on {formatTime(asked.time)} UTC.
            </p>
            <p>What was changed since the newest snapshot is lost: take one before, if you may want it back.</p>
          </DialogForm>
        </Dialog>
      )}
    </>
  );
}

function TakeSnapshot({ domain, done }: { domain: Domain; done: () => void }) {
  const [message, setMessage] = useState('');
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const take = async () => {
    setIsBusy(true);
    setError(undefined);
    try {
      await sendJson('/snapshots', domain.query, { method: 'POST', body: { message } });
      setMessage('');
      done();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <form
      className="bar"
      autoComplete="off"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isBusy) void take();
      }}
    >
      <label>
        Message <input value={message} maxLength={MOST} onChange={(event) => setMessage(event.target.value)} />
      </label>
      <button disabled={isBusy}>Take a snapshot</button>
      {error !== undefined && <ErrorNotice error={error} />}
    </form>
  );
}
