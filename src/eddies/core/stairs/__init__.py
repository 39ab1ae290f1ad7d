"""STAIRs: join state that an eddy can read and rewrite. Begin with `stair`, then `operations`."""
