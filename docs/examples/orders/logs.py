"""Log lines as JSON."""

import json
import logging
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """Writes the facts that aiocosid adds to its records, too."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "aiocosid": getattr(record, "aiocosid", None),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
