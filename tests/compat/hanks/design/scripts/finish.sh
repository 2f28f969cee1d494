printf 'fonts embedded\n' > workspace/artifact/fonts.css
