"""A store of pages in a SQLite file, with a checksum for each page, and its adapter for kvcanon."""

import hashlib
import sqlite3
from contextlib import suppress

from kvcanon.conformance import StoreAdapter, StoreOffer, folder_ground
from kvcanon.spec.stores import Ability, identity_digest, page_digest


class SqliteStore:
    def __init__(self, folder, identity, capacity_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        self.identity = identity
        try:
            self.connect(folder)
        except sqlite3.DatabaseError:  # What is there is no database any more.
            for path in folder.iterdir():
                path.unlink()
            self.connect(folder)

    def connect(self, folder):
        self.database = sqlite3.connect(folder / "pages.db", isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS pages (name BLOB PRIMARY KEY, sum, page)")
        if self.database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("damaged")

    def name_of(self, key):
        return identity_digest(self.identity) + page_digest(key, self.identity.page_size)

    def put(self, pages):
        return [self.put_one(self.name_of(key), page) for key, page in pages]

    def put_one(self, name, page):
        with suppress(sqlite3.Error):
            row = name, hashlib.sha256(name + page).digest(), page
            self.database.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?)", row)
            return True
        return False

    def get(self, pages):
        return [self.get_one(self.name_of(key), buffer) for key, buffer in pages]

    def get_one(self, name, buffer):
        with suppress(sqlite3.Error):
            question = "SELECT sum, page FROM pages WHERE name = ?"
            found = self.database.execute(question, (name,)).fetchone()
            if found and hashlib.sha256(name + found[1]).digest() == found[0]:
                if len(found[1]) <= len(buffer):
                    buffer[: len(found[1])] = found[1]
                    return len(found[1])
            elif found:
                self.database.execute("DELETE FROM pages WHERE name = ?", (name,))
        return None

    def exists(self, keys):
        return [self.has(self.name_of(key)) for key in keys]

    def has(self, name):
        with suppress(sqlite3.Error):
            question = "SELECT 1 FROM pages WHERE name = ?"
            return bool(self.database.execute(question, (name,)).fetchone())
        return False

    def close(self):
        self.database.close()


ABILITIES = {Ability.DURABLE, Ability.FILES, Ability.POOLS, Ability.NAMESPACES}
ADAPTER = StoreAdapter("sqlite", folder_ground(SqliteStore), StoreOffer(frozenset(ABILITIES)))
