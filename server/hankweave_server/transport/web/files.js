/**
 * The files that changed lately: what a rollback takes back leaves the list.
 */

const KEPT = 1_000;

/** @typedef {{path: string, action: string, bytes?: number, source: any, seq: number, timestamp: string}} ChangedFile */

/** Newest last. @extends {Map<string, ChangedFile>} */
export class ChangedFiles extends Map {
  /** @param {any} event `file.updated` */
  changed({ data, seq, timestamp }) {
    if ((this.get(data.path)?.seq ?? 0) > (seq ?? 0)) return;

    this.delete(data.path);
    this.set(data.path, { ...data, seq, timestamp });
    if (this.size > KEPT) this.delete(this.keys().next().value ?? "");
  }

  /**
   * Adds the paths that the event lists; the size of these files is unknown.
   * @param {any} event `files.changed`
   */
  burst({ data: { paths, source, codonId }, seq, timestamp }) {
    for (const { path, action } of paths)
      this.changed({ data: { path, action, source, codonId }, seq, timestamp });
  }

  /**
   * The files went back to what they were at an event: what changed between is undone, but for
   * the files that the rollback kept.
   * @param {{seq: number, target: number, paths?: string[] | null, kept?: string[]}} rollback
   */
  wentBack({ seq, target, paths = null, kept = [] }) {
    const stays = new Set(kept);
    for (const [path, { seq: at }] of this) {
      const isUndone = at > target && at < seq && !stays.has(path);
      if (isUndone && (paths === null || paths.some((each) => isBelow(path, each))))
        this.delete(path);
    }
  }
}

/**
 * What a rollback's event says of the files; null where it says nothing.
 * @param {any} event `checkpoint.rollback` or `rollback.completed`
 */
export function movementOf({ type, seq, data }) {
  const target = data.target ?? data.report?.target;
  if (target === undefined || (type === "rollback.completed" && !data.report)) return null;

  const kept = (data.report?.kept ?? []).map((each) => each.path);
  return { seq, target: target.eventSeq, paths: data.paths ?? null, kept };
}

/**
 * The numbers of files in a rollback's report, whose lists may be incomplete.
 * @param {any} report
 */
export function countsOf(report) {
  const { added, updated, removed, kept, conflicts, skipped, cannotRestore = [] } = report;
  return (
    report.totals ?? {
      added: added.length,
      updated: updated.length,
      removed: removed.length,
      kept: kept.length,
      conflicts: conflicts.length,
      skipped: skipped.length,
      cannotRestore: cannotRestore.length,
    }
  );
}

function isBelow(path, folder) {
  return path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);
}
