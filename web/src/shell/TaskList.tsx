/** The tasks of the page, each with its progress, what came of it, and what can be done about it. */

import { formatAddress } from '../address';
import { ErrorNotice } from './ErrorNotice';
import { formatBytes, formatCount } from './format';
import type { Progress, Task, Tasks } from './useTasks';

export function TaskList({ tasks }: { tasks: Tasks }) {
  if (tasks.list.length === 0) return null;
  return (
    <section className="tasks" aria-label="Tasks">
      <ul>
        {tasks.list.map((task) => (
          <li key={task.id}>
            <TaskItem task={task} tasks={tasks} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function TaskItem({ task, tasks }: { task: Task; tasks: Tasks }) {
  const { title, state, progress, outcome, error } = task;
  const isOver = state === 'failed' || state === 'stopped';
  return (
    <>
      <div className="bar">
        <strong>{title}</strong>
        {state === 'running' && progress.total !== undefined && progress.total > 0 && (
          <progress aria-label={title} max={progress.total} value={Math.min(progress.done ?? 0, progress.total)} />
        )}
        {state === 'running' && <span className="quiet">{progressText(progress, task.rate)}</span>}
        {/* Read aloud when it changes, so without the progress. */}
        <span role="status" className="quiet">
          {state === 'waiting' ? 'waits for its turn' : state === 'stopped' ? 'stopped' : outcome?.said}
        </span>
        {state === 'done' && outcome?.link !== undefined && <a href={formatAddress(outcome.link)}>Open {outcome.link.domain}</a>}
        {(state === 'waiting' || state === 'running') && (
          <button onClick={() => tasks.stop(task)} aria-label={`Cancel: ${title}`}>
            Cancel
          </button>
        )}
        {isOver && <button onClick={() => tasks.retry(task)}>Try again</button>}
        {isOver && task.undo?.fits(error) === true && <button onClick={() => tasks.undo(task)}>{task.undo.name}</button>}
        {(isOver || state === 'done') && (
          <button onClick={() => tasks.dismiss(task)} aria-label={`Dismiss: ${title}`}>
            Dismiss
          </button>
        )}
      </div>
      {isOver && error !== undefined && <ErrorNotice error={error} />}
    </>
  );
}

function progressText({ text, done, total, unit }: Progress, rate: number | undefined): string {
  const format = unit === 'bytes' ? formatBytes : formatCount;
  const parts = [text];
  if (done !== undefined) parts.push(total === undefined ? format(done) : `${format(done)} of ${format(total)}`);
  if (done !== undefined && rate !== undefined && rate > 0) parts.push(`${format(Math.round(rate))}/s`);
  return parts.join(' · ');
}
