"""Another codon 5, which breaks what works: it tidies the schema, one careless edit among others.

No codon of the hank runs it. `variants/tidy.json` gives it the place of `report`, so that there is
something for `hankweave bisect` to find.
"""

from __future__ import annotations

import json

from generate import read_schema
from infer import SCHEMA_FILE
from transcript import Transcript

STRONGEST_EXPECTED = 3


def main() -> None:
    with Transcript("tidy") as transcript:
        schema = read_schema()

        def write() -> None:
            transcript.write(SCHEMA_FILE, json.dumps(schema, indent=2) + "\n")

        transcript.say("I will tidy the schema.")
        schema["title"] = "Earthquakes"
        write()
        schema["properties"]["properties"]["properties"]["mag"]["maximum"] = STRONGEST_EXPECTED
        write()
        schema["description"] = "Earthquakes of one week."
        write()
        transcript.say("The schema is tidy.")


if __name__ == "__main__":
    main()
