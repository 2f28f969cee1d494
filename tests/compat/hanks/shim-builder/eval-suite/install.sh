touch installed
