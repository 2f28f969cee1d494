"""What commands print: texts, tables, progress and errors."""
