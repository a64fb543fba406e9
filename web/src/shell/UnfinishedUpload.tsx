/** How much there is of an upload that is not imported yet. */

import { useLoad } from '../api/load';
import { readUpload } from '../api/upload';
import { formatBytes } from './format';

interface Props {
  path: string;
  root: string;
  bucket: string | undefined;
  /** Changes when it may have changed. */
  version: number;
}

export function UnfinishedUpload({ path, root, bucket, version }: Props) {
  const { value } = useLoad(`${bucket} ${path} ${root} ${version}`, (signal) => readUpload(path, root, bucket, signal));
  if (value === undefined) return null;
  const { received, size } = value;
  return (
    <div className="quiet">
      unfinished upload: {formatBytes(received)} of {formatBytes(size)} are there; drop the same file here to {received < size ? 'go on' : 'import it'}
    </div>
  );
}
