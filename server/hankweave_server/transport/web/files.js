/** What a rollback did with files, in numbers. */

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
