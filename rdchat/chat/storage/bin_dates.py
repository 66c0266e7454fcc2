"""When what was deleted is erased, also where the clock jumped: a clock may be years wrong until it has a network."""

from rdchat.chat.storage.database import Database

KEPT_DAYS = 30  # in the bin
_DAY_S = 86_400.0
_DOUBTFUL_DAYS = 365  # past its time: the clock jumped, at the deletion or since, or nobody has opened the app


def expiry_limit(database: Database, now: float, *tables: str) -> float:
    """Return the time before which what was deleted has expired.

    Dates that cannot be right are mended first, so that they expire later: those of the future become `now`, and what
    expired a year ago has one more day, in which a person can see it in the bin.

    Args:
        database: The store's.
        now: Seconds since the epoch.
        tables: Those with a column `deleted_at`.
    """
    limit = now - KEPT_DAYS * _DAY_S
    doubtful = limit - _DOUBTFUL_DAYS * _DAY_S
    for table in tables:
        if database.rows(f"SELECT 1 FROM {table} WHERE deleted_at > ? OR deleted_at < ? LIMIT 1", now, doubtful):
            with database.writing() as connection:
                connection.execute(
                    f"UPDATE {table} SET deleted_at = CASE WHEN deleted_at > ? THEN ? ELSE ? END"
                    " WHERE deleted_at > ? OR deleted_at < ?",
                    (now, now, limit + _DAY_S, now, doubtful),
                )
    return limit
