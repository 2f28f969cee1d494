echo '{"days": 14}' > window.json
