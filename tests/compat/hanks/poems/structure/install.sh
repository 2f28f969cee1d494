mkdir -p src
