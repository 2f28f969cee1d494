mkdir -p workspace
ls -1 read_only_data_source > workspace/inventory.txt
