"""Settings of the example project. One line turns scrapy-lease on; the rest is any Scrapy project's."""

BOT_NAME = "example"
SPIDER_MODULES = ["example.spiders"]
NEWSPIDER_MODULE = "example.spiders"

ADDONS = {"scrapy_lease.Addon": 500}

ITEM_PIPELINES = {"example.pipelines.StorePipeline": 300}
DOWNLOADER_MIDDLEWARES = {"example.middlewares.NodeHeader": 410}

SHOP_DATABASE_URL = "sqlite:///shop.db"
