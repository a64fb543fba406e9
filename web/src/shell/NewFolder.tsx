/** A new folder in the one that is shown. */

import { useState } from 'react';
import { makeFolder, pathIn } from '../api/deeds';
import { Dialog, DialogForm } from './Dialog';

interface Props {
  folder: string;
  bucket: string | undefined;
  done: (said: string) => void;
}

export function NewFolder({ folder, bucket, done }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  const [name, setName] = useState('');
  const close = () => {
    setIsOpen(false);
    setName('');
  };
  const submit = async () => {
    const path = pathIn(folder, name);
    await makeFolder({ path, bucket });
    done(`${path} is there now.`);
  };
  return (
    <>
      <button aria-haspopup="dialog" onClick={() => setIsOpen(true)}>
        New folder
      </button>
      {isOpen && (
        <Dialog title="New folder" close={close}>
          <DialogForm name="Create" submit={submit} close={close}>
            <label>
              Name <input value={name} required autoFocus onChange={(event) => setName(event.target.value)} />
            </label>
          </DialogForm>
        </Dialog>
      )}
    </>
  );
}
