/** The rights in a folder or a domain: shown to those who may see them, changed by those who may. */

import { useState } from 'react';
import { type About, sendJson } from '../api/client';
import { type Entries, readAcls, removeAcl, RIGHTS, setAcl } from '../api/deeds';
import type { Domain } from '../api/hdf';
import { useLoad } from '../api/load';
import { type Rights, useRights } from '../api/rights';
import { Dialog, DialogForm } from './Dialog';
import { ErrorNotice } from './ErrorNotice';
import { type Loss, lossesOf } from './lockout';

const NONE = Object.fromEntries(RIGHTS.map((right) => [right, false])) as Rights;
const READING: Rights = { ...NONE, read: true };

export function Acls({ domain }: { domain: Domain }) {
  const [open, setOpen] = useState(false);
  const place = `${domain.bucket} ${domain.path}`;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Rights</summary>
      {open && <AclTable key={place} domain={domain} />}
    </details>
  );
}

/** A change of an entry, or its end, that is to be confirmed. */
interface Change {
  user: string;
  rights: Rights | undefined;
  losses: Loss[];
}

function AclTable({ domain }: { domain: Domain }) {
  const [version, setVersion] = useState(0);
  const [asked, setAsked] = useState<Change>();
  const [error, setError] = useState<unknown>();
  const rights = useRights(domain, version);
  const acls = useLoad(`${domain.bucket} ${domain.path} ${version}`, (signal) => readAcls(domain, signal));
  const about = useLoad('about', (signal) => sendJson<About>('/about', {}, { signal }));
  const entries = acls.value;
  if (acls.error !== undefined) {
    const own = RIGHTS.filter((right) => rights[right]);
    return (
      <>
        <ErrorNotice error={acls.error} retry={acls.reload} />
        {own.length > 0 && <p className="notice">Your own rights: {own.join(', ')}.</p>}
      </>
    );
  }
  if (entries === undefined) return <p className="notice">Loading…</p>;
  const apply = async ({ user, rights: given }: Omit<Change, 'losses'>) => {
    await (given === undefined ? removeAcl(domain, user) : setAcl(domain, user, given));
    setVersion((count) => count + 1);
  };
  const change = async (user: string, given: Rights | undefined) => {
    setError(undefined);
    const { [user]: _, ...others } = entries;
    const after: Entries = given === undefined ? others : { ...others, [user]: given };
    const losses = about.value === undefined || about.value.isadmin ? [] : lossesOf(about.value.username, rights, entries, after);
    if (losses.length > 0) setAsked({ user, rights: given, losses });
    else await apply({ user, rights: given }).catch(setError);
  };
  return (
    <>
      <table aria-label="Rights">
        <thead>
          <tr>
            <th>User</th>
            {RIGHTS.map((right) => (
              <th key={right}>{right}</th>
            ))}
            {rights.updateACL && <th>Change</th>}
          </tr>
        </thead>
        <tbody>
          {Object.entries(entries).map(([user, given]) =>
            rights.updateACL ? (
              <EditRow key={`${user} ${RIGHTS.map((right) => given[right])}`} user={user} given={given} change={(next) => void change(user, next)} />
            ) : (
              <tr key={user}>
                <td>{user}</td>
                {RIGHTS.map((right) => (
                  <td key={right}>{given[right] ? 'yes' : '–'}</td>
                ))}
              </tr>
            ),
          )}
        </tbody>
      </table>
      {error !== undefined && <ErrorNotice error={error} />}
      {rights.updateACL && <AddEntry key={version} entries={entries} add={change} />}
      {asked !== undefined && (
        <Dialog title={`Rights of ${asked.user}`} close={() => setAsked(undefined)}>
          <DialogForm name="Change them all the same" isDanger submit={() => apply(asked)} close={() => setAsked(undefined)}>
            {asked.losses.map(({ right, isSure }) => (
              <p key={right}>
                You ({about.value?.username}) {isSure ? 'lose' : 'lose, unless a group of yours has it,'} the right {right} in {domain.path}.
              </p>
            ))}
            <p>Only an admin, or another user with updateACL, can give it back.</p>
          </DialogForm>
        </Dialog>
      )}
    </>
  );
}

interface RowProps {
  user: string;
  given: Rights;
  /** Sets other rights; without any, removes the entry. */
  change: (rights: Rights | undefined) => void;
}

function EditRow({ user, given, change }: RowProps) {
  const [rights, setRights] = useState(given);
  const isChanged = RIGHTS.some((right) => rights[right] !== given[right]);
  return (
    <tr>
      <td>{user}</td>
      {RIGHTS.map((right) => (
        <td key={right}>
          <input type="checkbox" aria-label={`${user}: ${right}`} checked={rights[right]} onChange={(event) => setRights({ ...rights, [right]: event.target.checked })} />
        </td>
      ))}
      <td>
        <button disabled={!isChanged} aria-label={`Save ${user}`} onClick={() => change(rights)}>
          Save
        </button>{' '}
        <button aria-label={`Remove ${user}`} onClick={() => change(undefined)}>
          Remove
        </button>
      </td>
    </tr>
  );
}

/** A new entry: of a user, of a group, or of all without one. */
function AddEntry({ entries, add }: { entries: Entries; add: (user: string, rights: Rights) => Promise<void> }) {
  const [user, setUser] = useState('');
  const [rights, setRights] = useState(READING);
  const isThere = Object.hasOwn(entries, user);
  return (
    <form
      className="bar"
      autoComplete="off"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isThere) void add(user, rights);
      }}
    >
      <label>
        User, g:GROUP or default <input value={user} required onChange={(event) => setUser(event.target.value)} />
      </label>
      {RIGHTS.map((right) => (
        <label key={right}>
          <input type="checkbox" checked={rights[right]} onChange={(event) => setRights({ ...rights, [right]: event.target.checked })} /> {right}
        </label>
      ))}
      <button disabled={isThere}>Add</button>
      <span role="status" className="quiet">
        {isThere ? 'It has an entry already: change that one.' : ''}
      </span>
    </form>
  );
}
