/** Files of this computer that are dropped on a folder, or chosen: each is imported by a task of its own. */

import { type DragEvent, useRef, useState } from 'react';
import { OtherUpload, Upload } from '../api/upload';
import type { NewTask } from './useTasks';

export interface Uploads {
  /** Imports files into a folder, one after the other. */
  take: (folder: string, files: Iterable<File>) => void;
  /** What an element needs on which files for a folder are dropped. */
  zone: (folder: string) => Zone;
  /** The folder over which files are held. */
  over: string | undefined;
}

interface Zone {
  onDragOver: (event: DragEvent) => void;
  onDragLeave: (event: DragEvent) => void;
  onDrop: (event: DragEvent) => void;
}

export function useUploads(run: (task: NewTask) => void): Uploads {
  const [over, setOver] = useState<string>();
  const take = (folder: string, files: Iterable<File>) => {
    for (const file of files) run(uploadTask(folder, file));
  };
  const zone = (folder: string): Zone => ({
    onDragOver: (event) => {
      if (!event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      event.stopPropagation();
      event.dataTransfer.dropEffect = 'copy';
      setOver(folder);
    },
    onDragLeave: () => setOver(undefined),
    onDrop: (event) => {
      event.preventDefault();
      event.stopPropagation();
      setOver(undefined);
      const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry());
      const folders = entries.filter((entry) => entry?.isDirectory).map((entry) => entry?.name);
      take(folder, [...event.dataTransfer.files].filter(({ name }) => !folders.includes(name)));
      for (const name of folders) run(refused(`Import ${name} into ${folder}`, new Error(`${name} is a folder: drop the files that are in it.`)));
    },
  });
  return { take, zone, over };
}

/** The task that uploads a file and has it imported. */
function uploadTask(folder: string, file: File): NewTask {
  const title = `Import ${file.name} into ${folder}`;
  let upload: Upload;
  try {
    upload = new Upload(folder, file);
  } catch (error) {
    return refused(title, error);
  }
  return {
    title,
    isQueued: true,
    check: (signal) => upload.check(signal),
    work: async (report, signal) => {
      const said = await upload.run((progress) => report({ ...progress, unit: 'bytes' }), signal);
      return { said, link: { domain: upload.target, path: '/' } };
    },
    undo: {
      name: 'Delete the upload',
      fits: (error) => !(error instanceof OtherUpload),
      work: async () => {
        await upload.delete();
        return { said: 'The upload is deleted.' };
      },
    },
  };
}

function refused(title: string, error: unknown): NewTask {
  return { title, work: () => Promise.reject(error as Error) };
}

/** The button that does the same by the keyboard. */
export function FileButton({ take }: { take: (files: Iterable<File>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <button onClick={() => input.current?.click()}>Import files</button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to import"
        onChange={(event) => {
          take([...(event.target.files ?? [])]);
          // The same file can be chosen again.
          event.target.value = '';
        }}
      />
    </>
  );
}
