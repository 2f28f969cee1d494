"""Git objects, packs, trees and refs, read and written without the git program."""
